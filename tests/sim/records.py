"""The simulation's idea of a record, a grant, and of what a checkpoint covers."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field

from consumer_sdk.records import Checkpoint, Partition, Position

__all__ = [
    "BrokenPromiseError",
    "Grant",
    "Record",
    "attempts_in",
    "covers",
    "edges",
    "number",
    "read_number",
]


def number(position: Position) -> int:
    """Where a record is stored; subscriptions speak of entries and indexes."""
    return position if isinstance(position, int) else sum(position)


def read_number(text: str) -> int:
    """The same, of a position's text."""
    return sum(int(part) for part in text.split(":"))


class BrokenPromiseError(AssertionError):
    """The runtime broke one of its promises."""


@dataclass(slots=True)
class Record:
    """One appended record and its fate.

    Attributes:
        failures: deliveries that failed.
        deliveries: times that user code got it.
        is_processed: user code was done with it.
        is_buried: its dead letter is durable.
        is_removed: retention took it.
        is_given_up: rejected, or failed too often: only its dead letter settles it.
        grant: under which it was delivered last.
    """

    partition: Partition
    position: int
    key: bytes | None
    failures: int = 0
    deliveries: int = 0
    is_processed: bool = False
    is_buried: bool = False
    is_removed: bool = False
    is_given_up: bool = False
    grant: Grant | None = field(default=None, repr=False)

    @property
    def is_settled(self) -> bool:
        """A checkpoint may cover it."""
        return self.is_processed or self.is_buried or self.is_removed

    def reopen(self) -> None:
        """Somebody wants it processed again."""
        self.is_processed = self.is_buried = self.is_given_up = False

    def __str__(self) -> str:
        return f"{self.partition.id}@{self.position}"


@dataclass(slots=True)
class Grant:
    """What one process did under one assignment.

    Attributes:
        durable: the checkpoint that a restart found when it was granted.
        failures: failed deliveries of each record that the runtime must know of: those that it restored, and
            those under this assignment.
        has_started: the runtime has said where it starts.
        is_over: a revoke has begun, or it was lost.
        first_delivered: the last position that came for the first time, by lane.
        busy: which call of user code is at work, by lane.
    """

    process: str
    durable: Checkpoint | None
    failures: dict[int, int] = field(default_factory=dict)
    has_started: bool = False
    is_over: bool = False
    first_delivered: dict[Hashable, int] = field(default_factory=dict)
    handed_out: set[int] = field(default_factory=set)
    settled: set[int] = field(default_factory=set)
    busy: dict[Hashable, object] = field(default_factory=dict)


def attempts_in(checkpoint: Checkpoint | None) -> dict[int, int]:
    """Position → failed deliveries that a restart knows of."""
    kept = {} if checkpoint is None else checkpoint.attempts
    return {number(position): failures for position, (failures, _) in kept.items()}


def covers(checkpoint: Checkpoint | None, position: int) -> bool:
    """The checkpoint keeps a restart from delivering this position."""
    if checkpoint is None:
        return False
    if checkpoint.resume is not None and position < checkpoint.resume:
        return True
    if checkpoint.watermark is not None and position <= checkpoint.watermark:
        return True
    return any(first <= position <= last for first, last in checkpoint.ranges)


def edges(checkpoint: Checkpoint | None) -> list[int]:
    """Positions that a later checkpoint covers too, if it did not go back."""
    if checkpoint is None:
        return []
    found = [position for span in checkpoint.ranges for position in span]
    if checkpoint.watermark is not None:
        found.append(checkpoint.watermark)
    return found if checkpoint.resume is None else [*found, checkpoint.resume - 1]
