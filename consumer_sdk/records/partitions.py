"""Partitions, what holds them, and where they start."""

from __future__ import annotations

import enum
import math
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, NamedTuple, TypeAlias
from urllib.parse import quote, unquote

from consumer_sdk.errors import ConfigurationError
from consumer_sdk.options import NUMBER, OptionType

__all__ = ["Assignment", "AtPosition", "AtTime", "Partition", "Position", "Start", "StartPoint"]

TIME = OptionType(
    "seconds since the epoch, or a datetime with a time zone",
    lambda value: NUMBER.accepts(value) and abs(value) < math.inf,
)

YEAR_2286 = 1e10
"""Seconds since the epoch; milliseconds were there in April 1970."""

Position: TypeAlias = Any
"""A place in a partition; see the module's docstring."""


class Partition(NamedTuple):
    """One ordered log: a Kafka topic-partition, a Kinesis shard, a Pulsar topic(-partition).

    ``str(partition)`` is for people; `path` is its place in a store, and `parse` reads that back.
    """

    stream: str
    id: str

    def __str__(self) -> str:
        return f"{self.stream}/{self.id}"

    @property
    def path(self) -> str:
        """``stream/id``, percent-encoded, so that there is one slash whatever the names are."""
        return f"{quote(self.stream, safe='')}/{quote(self.id, safe='')}"

    @classmethod
    def parse(cls, text: str) -> Partition:
        """The partition whose `path` is ``text``.

        Raises:
            ValueError: ``text`` is not ``stream/id``.
        """
        stream, slash, id_ = text.partition("/")
        if not slash or "/" in id_:
            raise ValueError(
                f"{text!r} is not the path of a partition (stream/id, names percent-encoded)"
            )
        return cls(unquote(stream), unquote(id_))


@dataclass(frozen=True, slots=True, eq=False)
class Assignment:
    """A partition held by this consumer from grant to loss; compared by identity.

    Attributes:
        partition: what is held.
        epoch: grows with every grant in this process; an older epoch's acks are ignored.
        fence: orders *processes*: a lease's epoch, or Kafka's generation. None if the last claim
            wins.
        discovered: the partition was created after the group's first start, so it is read from its
            earliest record, never from "latest".
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


@dataclass(frozen=True, slots=True, init=False)
class AtTime:
    """Start at the first record stored at or after a time.

    Args:
        time: seconds since the epoch, or a datetime that has a time zone.

    Attributes:
        time: seconds since the epoch.

    Raises:
        ConfigurationError: it is neither; a datetime without a zone could be any zone's.
    """

    time: float

    def __init__(self, time: float | datetime) -> None:
        if isinstance(time, datetime):
            if time.tzinfo is None:
                raise ConfigurationError(
                    f"AtTime({time!r}): a datetime without a time zone means another moment on each "
                    f"machine: give it one, such as tzinfo=UTC"
                )
            time = time.timestamp()
        if NUMBER.accepts(time) and YEAR_2286 <= time < math.inf:
            raise ConfigurationError(
                f"AtTime(time={time!r}) is beyond the year 2286: give seconds since the epoch, not "
                f"milliseconds"
            )
        TIME.check("time", time, "AtTime")
        object.__setattr__(self, "time", time)


@dataclass(frozen=True, slots=True)
class AtPosition:
    """Start at ``position``, inclusive: the first record read is the first one at or after it.

    Attributes:
        is_settled: the record at the position is known to be settled, and no earlier record is
            known to be open. So it is no loss if the broker no longer has that record.
    """

    position: Position
    is_settled: bool = field(default=False, compare=False)


Start: TypeAlias = StartPoint | AtTime | AtPosition
