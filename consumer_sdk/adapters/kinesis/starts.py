"""Starts and positions, in the words of Kinesis. Pure.

A position is ``(sequence number, sub-sequence number)``; the latter counts the user records of an
aggregate, from 0. There is no next sequence number, and Kinesis refuses a number that it has not
given. So the position after the record ``s`` is ``(s, LAST_SUB_SEQUENCE)``, which no record has.
"""

from __future__ import annotations

from consumer_sdk.adapters.kinesis.service.service import IteratorStart
from consumer_sdk.checkpoints.positions import LAST_SUB_SEQUENCE
from consumer_sdk.errors import ConfigurationError
from consumer_sdk.records import AtPosition, AtTime, Position, Start, StartPoint

__all__ = ["NOTHING_LEFT", "after", "iterator_start", "sequence_of"]


def after(sequence: int) -> tuple[int, int]:
    """The position after a record."""
    return sequence, LAST_SUB_SEQUENCE


NOTHING_LEFT = after(0)
"""Where a shard begins whose records have all expired, when none of them is known."""


def iterator_start(start: Start) -> IteratorStart:
    """Where Kinesis has to begin. Kinesis gives whole records, so the caller skips user records that it has.

    The read begins at the last known record itself. If that record does not come first, it has
    expired, and so may later records.

    Raises:
        ValueError: LATEST, which has to be resolved to a time first, and starts without records.
        ConfigurationError: a position that is none of Kinesis.
    """
    if start is StartPoint.EARLIEST:
        return IteratorStart("TRIM_HORIZON")
    if isinstance(start, AtTime):
        return IteratorStart("AT_TIMESTAMP", time=start.time)
    if isinstance(start, AtPosition):
        return IteratorStart("AT_SEQUENCE_NUMBER", sequence_of(start.position))
    raise ValueError(f"{start} is no place in a shard")


def sequence_of(position: Position) -> int:
    """The record's.

    Raises:
        ConfigurationError: a position that is none of Kinesis.
    """
    match position:
        case (int(sequence), int()):
            return sequence
    raise ConfigurationError(
        f"{position!r} is no position in a shard: give AtPosition((sequence number, sub-sequence "
        f"number)), as numbers"
    )
