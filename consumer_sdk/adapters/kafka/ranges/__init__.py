"""Ranges of Kafka topics: read without a group, by fetches of our own."""

from __future__ import annotations

from typing import TYPE_CHECKING

from consumer_sdk.adapters.kafka import import_part

if TYPE_CHECKING:
    from consumer_sdk.adapters.kafka.ranges.reader import KafkaRanges
else:
    KafkaRanges = import_part("ranges.reader").KafkaRanges

__all__ = ["KafkaRanges"]
