"""Messages as rows by partition, with their positions as they are stored."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from itertools import groupby
from operator import attrgetter
from typing import Any

from consumer_sdk.errors import ConfigurationError
from consumer_sdk.records import Assignment, Message, Partition, Position
from consumer_sdk.spark_bridge.columns import Place, Rows, are_numbers
from consumer_sdk.spark_bridge.errors import FeedRecordError

__all__ = ["count_rows", "place_text", "rows_of"]

ASSIGNMENT, POSITION = map(attrgetter, ("assignment", "position"))
_INT64 = range(-(2**63), 2**63)


def place_text(position: Position) -> str:
    """A position's text form where no other is asked for.

    Raises:
        ConfigurationError: it is neither an integer, nor text, nor a tuple of integers.
    """
    if isinstance(position, int | str):
        return str(position)
    if isinstance(position, tuple) and all(isinstance(part, int) for part in position):
        return ":".join(map(str, position))
    raise ConfigurationError(
        f"position {position!r} has no text form of its own: "
        "pass SparkFeed(..., encode_position=adapter.encode_position)"
    )


def rows_of(messages: Iterable[Message], encode_position: Callable[[Position], str]) -> list[Rows]:
    """The messages in order, each partition once.

    Raises:
        FeedRecordError: a position has no text form.
    """
    granted: defaultdict[Assignment, list[Message]] = defaultdict(list)
    for assignment, run in groupby(messages, ASSIGNMENT):
        granted[assignment] += run
    # A partition that was lost and granted again may be here under both assignments.
    parts: defaultdict[Partition, list[Message]] = defaultdict(list)
    for assignment, part in granted.items():
        parts[assignment.partition] += part
    return [Rows(key, part, _places(part, encode_position)) for key, part in parts.items()]


def count_rows(rows: Sequence[Rows]) -> int:
    """How many messages these are."""
    return sum(len(run.messages) for run in rows)


def _places(messages: Sequence[Message], encode: Callable[[Position], str]) -> Sequence[Place]:
    positions = [*map(POSITION, messages)]
    if (whole := _as_range(positions)) is not None:
        return whole
    if are_numbers(positions) and min(positions) in _INT64 and max(positions) in _INT64:
        return positions
    return [_place(position, encode) for position in positions]


def _as_range(positions: Sequence[Any]) -> range | None:
    """What most are: consecutive integers."""
    first, last = positions[0], positions[-1]
    if not type(first) is type(last) is int or last - first + 1 != len(positions):
        return None
    is_stored = first in _INT64 and last in _INT64
    whole = range(first, last + 1)
    return whole if is_stored and positions == [*whole] else None


def _place(position: Position, encode: Callable[[Position], str]) -> Place:
    if type(position) is int and position in _INT64:
        return position
    try:
        text = encode(position)
    except Exception as error:
        raise FeedRecordError(f"encode_position({position!r}) failed: {error!r}") from error
    if not isinstance(text, str):
        # Unlike text, nothing else would be recognised when it is put again.
        raise FeedRecordError(f"encode_position({position!r}) returned {text!r}, which is not text")
    return text
