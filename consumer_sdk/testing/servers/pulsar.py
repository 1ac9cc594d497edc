"""What tests do with a Pulsar that was started here or elsewhere."""

from abc import ABC, abstractmethod

__all__ = ["PulsarEndpoint"]


class PulsarEndpoint(ABC):
    """A Pulsar that tests can use, started here or elsewhere."""

    @property
    @abstractmethod
    def service_url(self) -> str:
        """``pulsar://host:port`` for clients."""

    @property
    @abstractmethod
    def admin_url(self) -> str:
        """``http://host:port`` of the admin interface."""
