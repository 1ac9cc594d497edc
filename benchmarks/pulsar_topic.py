"""The topic that every Pulsar contestant reads, and the check that each of them has read all of it."""

from __future__ import annotations

from array import array

import pulsar

__all__ = ["KEYS", "NUMBER", "MissingRecordsError", "check", "fill", "value"]

KEYS = 5_000
NUMBER = 4
"""Bytes at the start of each value: the record's number."""

_FILLING = b"v" * (100 - NUMBER)


class MissingRecordsError(Exception):
    """Not the records that are in the topic, or not each once."""


def value(number: int) -> bytes:
    """The 100 bytes of a record."""
    return array("I", [number]).tobytes() + _FILLING


def check(read: bytes | bytearray, records: int) -> None:
    """Raises MissingRecordsError unless the first records are there, each once.

    Args:
        read: the first `NUMBER` bytes of each value that was read, in any order.
        records: how many at least.
    """
    numbers = array("I", bytes(read))
    if len(numbers) < records:
        raise MissingRecordsError(f"{len(numbers):,} of {records:,} records")
    missing = set(range(len(numbers))).difference(numbers)
    if missing:
        raise MissingRecordsError(
            f"{len(missing):,} of the first {len(numbers):,} records were not read, as {min(missing):,}"
        )


def fill(service_url: str, topic: str, records: int) -> None:
    """Produces ``records`` values under 5 000 keys, in batches of up to 1 000; blocks.

    Whether all arrived is left to `check`: a callback for each would take longer than the rest.
    """
    client = pulsar.Client(service_url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
    try:
        producer = client.create_producer(
            topic,
            batching_enabled=True,
            batching_max_messages=1000,
            batching_max_allowed_size_in_bytes=1 << 20,
            batching_max_publish_delay_ms=100,
            block_if_queue_full=True,
            max_pending_messages=50_000,
        )
        for number in range(records):
            producer.send_async(value(number), None, partition_key=f"key-{number % KEYS:05d}")
        producer.flush()
    finally:
        client.close()
