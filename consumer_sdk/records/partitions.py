"""Partitions, what holds them, and where they start."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeAlias
from urllib.parse import quote, unquote

__all__ = ["Assignment", "AtPosition", "AtTime", "Partition", "Position", "Start", "StartPoint"]

Position: TypeAlias = Any
"""A place in a partition; see the module's docstring."""


class Partition(NamedTuple):
    """One ordered log: a Kafka topic-partition, a Kinesis shard, a Pulsar topic(-partition).

    ``str(partition)`` is its path in a store; `parse` reads it back.
    """

    stream: str
    id: str

    def __str__(self) -> str:
        return f"{quote(self.stream, safe='')}/{quote(self.id, safe='')}"

    @classmethod
    def parse(cls, text: str) -> Partition:
        """The partition whose text form is ``text``.

        Raises:
            ValueError: ``text`` is not ``stream/id``.
        """
        stream, slash, id_ = text.partition("/")
        if not slash or "/" in id_:
            raise ValueError(f"{text!r} is not the text form of a partition (stream/id)")
        return cls(unquote(stream), unquote(id_))


@dataclass(frozen=True, slots=True, eq=False)
class Assignment:
    """A partition held by this consumer from grant to loss; compared by identity.

    Attributes:
        partition: what is held.
        epoch: grows with every grant in this process; an older epoch's acks are ignored.
        fence: orders *processes*: a lease's epoch, Kafka's generation; None where the last
            claimer wins.
        discovered: the partition appeared after the group first started, so that it is read
            from its earliest record, never from "latest".
    """

    partition: Partition
    epoch: int
    fence: int | None = None
    discovered: bool = False


class StartPoint(enum.Enum):
    """Where a partition is read from when no checkpoint says so."""

    EARLIEST = "earliest"
    LATEST = "latest"
    BROKER = "broker"
    """Leave the broker's own cursor alone, or let it begin where the adapter has new ones begin."""
    ENDED = "ended"
    """The partition was read to its end: there is nothing to read."""


@dataclass(frozen=True, slots=True)
class AtTime:
    """Start at the first record stored at or after ``time`` (seconds since the epoch)."""

    time: float


@dataclass(frozen=True, slots=True)
class AtPosition:
    """Start at ``position``, inclusive: the first record read is the first one at or after it.

    Attributes:
        is_settled: the record there is known to be settled, and nothing below the next ones is
            known to be open: that the broker has it no more is no loss.
    """

    position: Position
    is_settled: bool = field(default=False, compare=False)


Start: TypeAlias = StartPoint | AtTime | AtPosition
