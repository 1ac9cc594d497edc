"""Apache Pulsar, through pulsar-client."""

from consumer_sdk.errors import MissingExtraError

try:
    import pulsar as _pulsar  # noqa: F401 - whether it is there
except ImportError as _error:
    raise MissingExtraError("pulsar-client", "pulsar") from _error

from consumer_sdk.adapters.pulsar.adapter import PulsarAdapter
from consumer_sdk.adapters.pulsar.consumer.details import PulsarDetails

__all__ = ["PulsarAdapter", "PulsarDetails"]
