"""Where partitions begin, and where a batch query's end: as data, and resolved from answers.

`stream_planner.resolved` asks: `questions` says what, ``reader.positions(partitions, at)`` answers each, and
`resolve` chooses. A group without a position begins at the earliest record; a partition that
appears later always does (`NEW`), since all of its records are new.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from consumer_sdk.errors import CheckpointFormatError, ConfigurationError
from consumer_sdk.records import AtTime, Partition, Position, Start, StartPoint

__all__ = [
    "NEW",
    "Answers",
    "PositionText",
    "Starts",
    "check_order",
    "questions",
    "resolve",
]


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

    def is_written(self, partition: Partition) -> bool:
        """A position or a time was asked for, and no point that only the broker knows."""
        wanted = dict(self.each).get(partition, self.everywhere)
        return isinstance(wanted, PositionText | AtTime)

    def choices(self, wanted: Wanted) -> list[Start]:
        """What is asked of the reader: the first that has an answer counts."""
        if isinstance(wanted, PositionText):
            return []
        if isinstance(wanted, AtTime):
            return [wanted] if self.late is None else [wanted, self.late]
        if wanted is StartPoint.BROKER:
            return [StartPoint.BROKER, StartPoint.EARLIEST]
        return [wanted]

    def too_late(self, partition: Partition, wanted: AtTime) -> str:
        """What is wrong with a time that lies after the last record."""
        return (
            f"{self.option}: {partition} has no record at or after {wanted.time * 1000:.0f} ms; "
            f"give an earlier time, or startingOffsetsByTimestampStrategy=latest"
        )

    def _mismatch(self, partitions: Collection[Partition]) -> str:
        named = dict(self.each)
        extra = ", ".join(str(each) for each in sorted(partitions) if each in named)
        missing = ", ".join(str(each) for each in sorted(partitions) if each not in named)
        parts = [f"{extra} is not there" if extra else "", f"{missing} is left out" * bool(missing)]
        return (
            f"{self.option} has to name exactly the partitions that are read: "
            f"{'; '.join(part for part in parts if part)} (-2 stands for earliest, -1 for latest)"
        )


NEW = Starts(StartPoint.EARLIEST)
"""For partitions that appear after the query began."""


def questions(starts: Starts, partitions: Collection[Partition]) -> dict[Start, list[Partition]]:
    """What has to be asked of the reader, and for which partitions; fall-backs included.

    Raises:
        ConfigurationError: as `Starts.wanted`.
    """
    asked: dict[Start, list[Partition]] = {}
    for partition, wanted in starts.wanted(partitions).items():
        for each in starts.choices(wanted):
            asked.setdefault(each, []).append(partition)
    return asked


def resolve(
    starts: Starts,
    partitions: Collection[Partition],
    answers: Answers,
    decode: Callable[[str], Position],
) -> dict[Partition, Position]:
    """Where each partition begins (or ends); partitions that are gone are left out.

    Raises:
        ConfigurationError: as `Starts.wanted`; a position's text cannot be read; or no record is
            as new as the wanted time, and nothing says what then.
    """
    found = {}
    for partition, wanted in starts.wanted(partitions).items():
        if isinstance(wanted, PositionText):
            position = _decoded(starts, partition, wanted, decode)
        else:
            position = _first([answers[each][partition] for each in starts.choices(wanted)])
        if position is not None:
            found[partition] = position
        elif isinstance(wanted, AtTime) and starts.late is None:
            raise ConfigurationError(starts.too_late(partition, wanted))
    return found


def check_order(
    first: Starts,
    begin: Mapping[Partition, Position],
    last: Starts,
    end: Mapping[Partition, Position],
) -> None:
    """Refuses an end before the start where both were written by the user.

    Where the broker was asked for one of them, such a partition may have lost records: that is
    for `tasks.readable_ranges` to judge.

    Raises:
        ConfigurationError: names the partition and both positions.
    """
    for partition in sorted(end):
        start, stop = begin[partition], end[partition]
        if start > stop and first.is_written(partition) and last.is_written(partition):
            raise ConfigurationError(
                f"{partition} would begin at {start} ({first.option}), after its end at {stop} "
                f"({last.option}): give an end that is not before the start"
            )


def _first(positions: Iterable[Position | None]) -> Position | None:
    return next((position for position in positions if position is not None), None)


def _decoded(
    starts: Starts, partition: Partition, wanted: PositionText, decode: Callable[[str], Position]
) -> Position:
    try:
        return decode(wanted.text)
    except CheckpointFormatError as error:
        raise ConfigurationError(
            f"{starts.option}: {wanted.text!r} is no position of {partition}: {error}"
        ) from error
