"""Apache Kafka, through aiokafka 0.13 or 0.14.

Importing this package imports neither the client nor the adapter: a Spark task only reads ranges, and an import costs
time in each of Spark's processes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from consumer_sdk.lazy import lazy_names

if TYPE_CHECKING:
    from consumer_sdk.adapters.kafka.adapter import KafkaAdapter
    from consumer_sdk.adapters.kafka.transactions.transactions import KafkaTransactions

__all__ = ["KafkaAdapter", "KafkaTransactions"]

__getattr__ = lazy_names(
    __name__,
    {
        "KafkaTransactions": "consumer_sdk.adapters.kafka.transactions.transactions",
        "KafkaAdapter": "consumer_sdk.adapters.kafka.adapter",
    },
)


def __dir__() -> list[str]:
    return __all__
