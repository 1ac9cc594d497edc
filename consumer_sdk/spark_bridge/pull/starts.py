"""Where partitions begin, and where a batch query's end: as data, and resolved from answers.

The I/O half asks: `questions` says what, ``reader.positions(partitions, at)`` answers each, and
`resolve` chooses. A group without a position begins at the earliest record; a partition that
appears later always does (`NEW`), since all of its records are new.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from consumer_sdk.errors import CheckpointFormatError, ConfigurationError
from consumer_sdk.records import AtTime, Partition, Position, Start, StartPoint

__all__ = ["NEW", "Answers", "PositionText", "Starts", "questions", "resolve"]


@dataclass(frozen=True, slots=True)
class PositionText:
    """A position that the user wrote; the reader decodes it."""

    text: str


Wanted: TypeAlias = StartPoint | AtTime | PositionText
Answers: TypeAlias = Mapping[Start, Mapping[Partition, Position | None]]


@dataclass(frozen=True, slots=True)
class Starts:
    """What was asked for.

    Attributes:
        everywhere: for all partitions; None when ``each`` has to name every one.
        each: partition → what it asks for, as sorted pairs.
        option: the option that said so, for errors.
        late: what a time means that lies after the last record: None is an error.
    """

    everywhere: StartPoint | AtTime | None
    each: tuple[tuple[Partition, Wanted], ...] = ()
    option: str = "startingOffsets"
    late: StartPoint | None = None

    def wanted(self, partitions: Collection[Partition]) -> dict[Partition, Wanted]:
        """What each of ``partitions`` asks for.

        Raises:
            ConfigurationError: the option names other partitions than there are.
        """
        if self.everywhere is not None:
            return dict.fromkeys(sorted(partitions), self.everywhere)
        named = dict(self.each)
        if named.keys() != set(partitions):
            raise ConfigurationError(self._mismatch(named.keys() ^ set(partitions)))
        return {partition: named[partition] for partition in sorted(partitions)}


NEW = Starts(StartPoint.EARLIEST)
"""For partitions that appear after the query began."""


def questions(starts: Starts, partitions: Collection[Partition]) -> dict[Start, list[Partition]]:
    """What has to be asked of the reader, and for which partitions; fall-backs included.

    Raises:
        ConfigurationError: as `Starts.wanted`.
    """
    raise NotImplementedError


def resolve(
    starts: Starts,
    partitions: Collection[Partition],
    answers: Answers,
    decode: Callable[[str], Position],
) -> dict[Partition, Position]:
    """Where each partition begins (or ends); partitions that are gone are left out.

    Raises:
        ConfigurationError: as `Starts.wanted`; a position's text cannot be read; or no record is
            as new as the wanted time, and the option does not say what then.
    """
    raise NotImplementedError
