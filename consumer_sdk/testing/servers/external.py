"""Servers that already run: they can be used, and that is all."""

import os
import re
from types import TracebackType
from typing import Self, final

from consumer_sdk.errors import ConfigurationError
from consumer_sdk.testing.servers.errors import ExternalServerError
from consumer_sdk.testing.servers.kafka import KafkaEndpoint
from consumer_sdk.testing.servers.kinesis.endpoint import KinesisEndpoint
from consumer_sdk.testing.servers.pulsar.endpoint import PulsarEndpoint
from consumer_sdk.testing.servers.zookeeper import ZooKeeperEndpoint

__all__ = [
    "ExternalKafka",
    "ExternalKinesis",
    "ExternalPulsar",
    "ExternalServer",
    "ExternalZooKeeper",
    "external_address",
    "external_pulsar",
    "external_url",
]


def external_address(variable: str) -> str | None:
    """Return the ``host:port`` that an environment variable names, None when it is not set.

    Raises:
        ConfigurationError: it is set to something else.
    """
    address = os.environ.get(variable)
    if not address:
        return None
    for part in address.split(","):
        host, _, port = part.rpartition(":")
        if not host or not port.isdecimal():
            raise ConfigurationError(f"{variable}={address!r} is not host:port[,host:port...]")
    return address


def external_url(variable: str) -> str | None:
    """Return the ``http://host:port`` that an environment variable names, None when it is not set.

    Raises:
        ConfigurationError: it is set to something else.
    """
    url = os.environ.get(variable)
    if not url:
        return None
    if re.fullmatch(r"https?://[^/:\s]+(:\d+)?/?", url) is None:
        raise ConfigurationError(f"{variable}={url!r} is not http://host:port")
    return url


class ExternalServer:
    """A server that somebody else started, and that only they may end.

    Args:
        address: what clients connect to.
    """

    def __init__(self, address: str) -> None:
        self.address = address

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.address}>"

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Leave the server as it is."""

    async def start(self) -> None:
        """Do nothing: it runs."""

    async def aclose(self) -> None:
        """Do nothing: it is not ours to stop."""

    async def stop(self) -> None:
        """Refuse: raises ExternalServerError."""
        raise self._refusal("stopped")

    async def kill(self) -> None:
        """Refuse: raises ExternalServerError."""
        raise self._refusal("killed")

    async def restart(self) -> None:
        """Refuse: raises ExternalServerError."""
        raise self._refusal("restarted")

    def pause(self) -> None:
        """Refuse: raises ExternalServerError."""
        raise self._refusal("paused")

    def resume(self) -> None:
        """Refuse: raises ExternalServerError."""
        raise self._refusal("resumed")

    def _refusal(self, what: str) -> ExternalServerError:
        return ExternalServerError(f"{self.address} was not started here and cannot be {what} here")


@final
class ExternalKafka(ExternalServer, KafkaEndpoint):
    """A Kafka that already runs."""

    @property
    def bootstrap_servers(self) -> str:
        """``host:port`` for clients."""
        return self.address


@final
class ExternalKinesis(ExternalServer, KinesisEndpoint):
    """A Kinesis that already runs, one that takes any credentials.

    An account of Amazon's refuses ours: no test can reach one by mistake.
    """

    @property
    def endpoint_url(self) -> str:
        """``http://host:port`` for clients."""
        return self.address


@final
class ExternalPulsar(ExternalServer, PulsarEndpoint):
    """A Pulsar that already runs, without authentication.

    Args:
        address: ``host:port`` of the broker.
        admin_url: ``http://host:port`` of its admin interface.
    """

    def __init__(self, address: str, admin_url: str) -> None:
        super().__init__(address)
        self._admin_url = admin_url.rstrip("/")

    @property
    def service_url(self) -> str:
        """``pulsar://host:port`` for clients."""
        return f"pulsar://{self.address}"

    @property
    def admin_url(self) -> str:
        """``http://host:port`` of the admin interface."""
        return self._admin_url


def external_pulsar() -> ExternalPulsar | None:
    """Return the Pulsar that the environment names, None when it names none.

    It takes two variables: ``CONSUMER_SDK_PULSAR=host:port`` and
    ``CONSUMER_SDK_PULSAR_ADMIN=http://host:port``.

    Raises:
        ConfigurationError: one of them is missing, or set to something else.
    """
    address = external_address("CONSUMER_SDK_PULSAR")
    admin_url = external_url("CONSUMER_SDK_PULSAR_ADMIN")
    if address and admin_url:
        return ExternalPulsar(address, admin_url)
    if address or admin_url:
        raise ConfigurationError(
            "CONSUMER_SDK_PULSAR=host:port and CONSUMER_SDK_PULSAR_ADMIN=http://host:port belong "
            "together: set both, or neither"
        )
    return None


@final
class ExternalZooKeeper(ExternalServer, ZooKeeperEndpoint):
    """A ZooKeeper that already runs."""

    @property
    def hosts(self) -> str:
        """``host:port`` for clients."""
        return self.address
