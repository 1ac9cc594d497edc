"""Reads ranges of Kafka topics without a group, by our own fetch requests."""

from __future__ import annotations

from typing import TYPE_CHECKING

from consumer_sdk.adapters.kafka import client_support as _support  # noqa: F401 - is it there?
from consumer_sdk.lazy import lazy_names

if TYPE_CHECKING:
    from consumer_sdk.adapters.kafka.ranges.reader import KafkaRanges

__all__ = ["KafkaRanges"]

__getattr__ = lazy_names(
    __name__,
    {
        "KafkaRanges": "consumer_sdk.adapters.kafka.ranges.reader",
    },
)


def __dir__() -> list[str]:
    return __all__
