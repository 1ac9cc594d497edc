"""Plans a reset: where each partition starts then, what is repeated and what is skipped. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from consumer_sdk.checkpoints.positions import LAST_BATCH_INDEX
from consumer_sdk.cli.times import is_time, parse_time
from consumer_sdk.errors import CheckpointFormatError, ConfigurationError
from consumer_sdk.records import (
    AtPosition,
    AtTime,
    Checkpoint,
    Partition,
    Position,
    Start,
    StartPoint,
)

__all__ = [
    "Bounds",
    "Move",
    "Span",
    "between",
    "open_below",
    "parse_target",
    "settled_from",
    "standing",
]

Span = tuple[Position, Position]
"""From the first one on, up to and without the second."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """What a broker stores of a partition.

    Attributes:
        first: the first position.
        end: the next one that will be written.
    """

    first: Position
    end: Position


@dataclass(frozen=True, slots=True)
class Move:
    """One partition's reset.

    Attributes:
        current: where the group would start now; None: it has no position.
        to: where it starts then.
        repeats: settled records that are delivered again, about.
        skips: unsettled records that are not delivered.
    """

    partition: Partition
    current: Position | None
    to: Position
    repeats: int
    skips: int


def parse_target(text: str, decode_position: Callable[[str], Position], now: float) -> Start:
    """Parses the argument of ``--to``.

    Raises:
        ConfigurationError: it is none of what there is.
    """
    if text in ("earliest", "latest"):
        return StartPoint(text)
    if is_time(text):
        return AtTime(parse_time(text, now))
    try:
        return AtPosition(decode_position(text))
    except CheckpointFormatError as error:
        raise ConfigurationError(
            f"--to {text}: give earliest, latest, a time such as 2h or 2026-05-01T12:00:00Z, or a "
            f"position: {error}"
        ) from error


def standing(checkpoint: Checkpoint | None, bounds: Bounds) -> Position | None:
    """Where a group stands: at its end, once a partition has ended. None: it has no position."""
    if checkpoint is None:
        return None
    return bounds.end if checkpoint.ended else checkpoint.start


def between(position: Position, bounds: Bounds) -> Position:
    """The nearest position that the broker stores, or its end."""
    return min(max(position, bounds.first), bounds.end)


def settled_from(checkpoint: Checkpoint | None, to: Position, bounds: Bounds) -> list[Span]:
    """What is settled at or above a position: a reset there delivers it again."""
    if checkpoint is None:
        return []
    spans = [(bounds.first, bounds.end)] if checkpoint.ended else _settled(checkpoint, bounds)
    return _cut(spans, to, bounds.end)


def open_below(checkpoint: Checkpoint | None, to: Position, bounds: Bounds) -> list[Span]:
    """What is not settled below a position: a reset there skips it."""
    at, spans = bounds.first, []
    if checkpoint is not None and checkpoint.ended:
        return []
    for first, end in _settled(checkpoint, bounds) if checkpoint is not None else []:
        spans.append((at, first))
        at = max(at, end)
    return _cut([*spans, (at, bounds.end)], bounds.first, to)


def _settled(checkpoint: Checkpoint, bounds: Bounds) -> list[Span]:
    spans = [(_whole(first), _after(last)) for first, last in checkpoint.ranges]
    below = bounds.first if checkpoint.start is None else checkpoint.start
    if checkpoint.watermark is not None:
        below = max(_after(checkpoint.watermark), bounds.first)
    return [(bounds.first, below), *spans]


def _after(position: Position) -> Position:
    """The next place, whether a record is there or not."""
    if isinstance(position, int):
        return position + 1
    if _is_entry(position):
        return (position[0], position[1] + 1, 0)
    return (*position[:-1], position[-1] + 1)


def _whole(position: Position) -> Position:
    """Of a message of Pulsar that is all of its entry, the entry's beginning."""
    return (*position[:-1], 0) if _is_entry(position) else position


def _is_entry(position: Position) -> bool:
    return isinstance(position, tuple) and position[2:] == (LAST_BATCH_INDEX,)


def _cut(spans: Sequence[Span], first: Position, end: Position) -> list[Span]:
    cut = ((max(low, first), min(high, end)) for low, high in spans)
    return [(low, high) for low, high in cut if low < high]
