"""Ranges of Kafka topics: read without a group, by fetches of our own."""

from consumer_sdk.adapters.kafka.ranges.reader import KafkaRanges

__all__ = ["KafkaRanges"]
