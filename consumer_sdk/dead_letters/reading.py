"""Reads dead letters back from the records of a topic or stream. Pure.

Kafka and Pulsar have the error in headers (`consumer_sdk.adapters.kafka.dead_letters`), Kinesis in a
line before the value (`consumer_sdk.records.letter_lines`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from consumer_sdk.records import DeadLetter, Headers, Partition
from consumer_sdk.records.dead_letter import PREFIX, SUBSCRIPTION, own_headers
from consumer_sdk.records.letter_lines import decode_letter

__all__ = ["broker_of", "letter_in"]


def letter_in(
    broker: str,
    *,
    key: bytes | None,
    value: bytes | None,
    headers: Headers,
    timestamp: int | None = None,
    ordering_key: bytes | None = None,
    details: Any = None,
) -> DeadLetter:
    """Makes a letter of a record of a dead-letter topic or stream.

    Args:
        timestamp: the record's; for Pulsar its event time.

    Raises:
        ValueError: it is no letter of this SDK; says what is missing.
    """
    if broker == "kinesis":
        return decode_letter(value or b"")
    texts = {name: (text or b"").decode("utf-8", "backslashreplace") for name, text in headers}
    why = {
        name.removeprefix(PREFIX): text for name, text in texts.items() if name.startswith(PREFIX)
    }
    try:
        return _letter(
            {"group": texts.get(SUBSCRIPTION, ""), **why},
            key=key,
            value=value,
            headers=own_headers(headers),
            timestamp=_time(why, timestamp, broker),
            ordering_key=ordering_key,
            details=details,
        )
    except KeyError as error:
        raise ValueError(f"it has no header {PREFIX}{error.args[0]}") from error


def _time(why: Mapping[str, str], timestamp: int | None, broker: str) -> int | None:
    if broker == "kafka":  # its own is when it was given up
        return int(why["timestamp"]) if "timestamp" in why else None
    return timestamp


def _letter(why: Mapping[str, str], **record: Any) -> DeadLetter:
    failed_at = float(why["failed-at"])
    if not math.isfinite(failed_at):
        raise ValueError(f"{PREFIX}failed-at is {failed_at}")
    return DeadLetter(
        partition=Partition(why["stream"], why["partition"]),
        position=why["position"],
        error=why["error"],
        error_type=why["error-type"],
        attempts=int(why["attempts"]),
        group=why["group"],
        failed_at=failed_at,
        **record,
    )


def broker_of(letter: DeadLetter) -> str:
    """The broker that a letter's record came from, which its partition's name tells."""
    stream, id_ = letter.partition
    if "://" in stream:
        return "pulsar"
    return "kinesis" if id_.startswith("shardId-") else "kafka"
