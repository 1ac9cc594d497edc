"""Apache Kafka, through aiokafka 0.13 or newer."""

from consumer_sdk.errors import ConfigurationError, MissingExtraError

try:
    import aiokafka as _aiokafka
except ImportError as _error:
    raise MissingExtraError("aiokafka", "kafka") from _error

try:
    from consumer_sdk.adapters.kafka.adapter import KafkaAdapter
except ImportError as _error:
    raise ConfigurationError(
        f"aiokafka {_aiokafka.__version__} is not supported ({_error}); "
        f"install a newer one: pip install -U 'consumer-sdk[kafka]'"
    ) from _error

__all__ = ["KafkaAdapter"]
