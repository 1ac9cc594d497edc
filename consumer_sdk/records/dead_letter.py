"""A record that was given up."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from consumer_sdk.records.messages import Headers
from consumer_sdk.records.partitions import Partition

__all__ = ["PREFIX", "SUBSCRIPTION", "DeadLetter", "own_headers"]

PREFIX = "dlq."

SUBSCRIPTION = "REAL_SUBSCRIPTION"
PULSARS = frozenset({"REAL_TOPIC", SUBSCRIPTION, "ORIGIN_MESSAGE_ID", "RECONSUMETIMES"})
"""What Pulsar's clients, and ours, add to a dead letter."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetter:
    """A record that goes to the dead letters, with its error and its origin.

    Attributes:
        partition: where it came from.
        position: its position's text form.
        key, value, headers, timestamp: the record as it was stored.
        error: what went wrong, as text.
        error_type: the exception's qualified name, or that of the cause of a `Reject` or `Retry`;
            ``"rejected"`` without a cause.
        attempts: deliveries that failed.
        group: the consumer group that dead-lettered it.
        failed_at: seconds since the epoch.
        ordering_key, details: as `Message` has them; other destinations than Pulsar leave them out.
    """

    partition: Partition
    position: str
    key: bytes | None
    value: bytes | None
    headers: Headers
    timestamp: int | None
    error: str
    error_type: str
    attempts: int
    group: str
    failed_at: float
    ordering_key: bytes | None = None
    details: Any = None


def own_headers(headers: Headers) -> Headers:
    """A record's own headers, without those that the dead letter added."""
    return [
        (name, value)
        for name, value in headers
        if not name.startswith(PREFIX) and name not in PULSARS
    ]
