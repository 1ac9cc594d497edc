"""One module per broker; the only places where its client is imported.

Importing this package imports no client: each adapter is loaded when it is first asked for. The
adapter of the in-memory broker is in `consumer_sdk.testing.memory`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from consumer_sdk.lazy import lazy_names

if TYPE_CHECKING:
    from consumer_sdk.adapters.kafka import KafkaAdapter, KafkaTransactions
    from consumer_sdk.adapters.kinesis import KinesisAdapter
    from consumer_sdk.adapters.pulsar import PulsarAdapter
    from consumer_sdk.adapters.urls import open_url
    from consumer_sdk.testing.memory import MemoryAdapter

__all__ = [
    "KafkaAdapter",
    "KafkaTransactions",
    "KinesisAdapter",
    "MemoryAdapter",
    "PulsarAdapter",
    "open_url",
]

__getattr__ = lazy_names(
    __name__,
    {
        "KafkaTransactions": "consumer_sdk.adapters.kafka",
        "KafkaAdapter": "consumer_sdk.adapters.kafka",
        "KinesisAdapter": "consumer_sdk.adapters.kinesis",
        "MemoryAdapter": "consumer_sdk.testing.memory",
        "PulsarAdapter": "consumer_sdk.adapters.pulsar",
        "open_url": "consumer_sdk.adapters.urls",
    },
)


def __dir__() -> list[str]:
    return __all__
