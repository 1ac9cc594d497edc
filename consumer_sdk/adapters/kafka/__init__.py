"""Apache Kafka, through aiokafka 0.13 or 0.14.

Importing this package imports the client, and not the adapter: a Spark task reads ranges alone, and
each of Spark's processes pays for what it imports.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from consumer_sdk.errors import ConfigurationError, MissingExtraError
from consumer_sdk.log_secrets import hide_arguments

try:
    import aiokafka as _aiokafka
except ImportError as _error:
    raise MissingExtraError("aiokafka", "kafka") from _error

if TYPE_CHECKING:
    from consumer_sdk.adapters.kafka.adapter import KafkaAdapter

__all__ = ["KafkaAdapter"]

hide_arguments("aiokafka.conn", kinds=("SaslAuthenticate",))


def import_part(module: str) -> Any:
    """A module of this package.

    Raises:
        ConfigurationError: it needs what this aiokafka does not have.
    """
    try:
        return import_module(f"{__name__}.{module}")
    except ImportError as error:
        raise ConfigurationError(
            f"aiokafka {_aiokafka.__version__} is not supported ({error}); "
            f"install a version that the kafka extra names: pip install 'consumer-sdk[kafka]'"
        ) from error


def __getattr__(name: str) -> Any:
    if name != "KafkaAdapter":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = found = import_part("adapter").KafkaAdapter
    return found
