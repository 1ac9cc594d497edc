"""Logs in memory behind the seam of range reads, with the faults that a test asks for."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

from consumer_sdk.errors import CheckpointFormatError, PositionOutOfRangeError
from consumer_sdk.range_reads import Columns, PartitionRange, RangeReader
from consumer_sdk.records import (
    AtPosition,
    Outcome,
    Partition,
    Position,
    Start,
    StartPoint,
)
from consumer_sdk.spark_bridge.pull.options.options import PullOptions

STREAM = "t"


def at(number: int) -> Partition:
    """Return a partition of the only stream."""
    return Partition(STREAM, str(number))


@dataclass(eq=False)
class Logs:
    """What a broker has, and what happens to it.

    ``faults`` are raised, one for each question, before it is answered; ``openers`` are the
    groups of the readers that were opened; ``unlisted`` partitions are there and not shown, and
    ``unchosen`` ones are none of the query's, so that nothing may be asked about them.
    """

    values: dict[Partition, list[bytes]] = field(default_factory=dict)
    first: dict[Partition, int] = field(default_factory=dict)
    group: dict[Partition, int] = field(default_factory=dict)
    commits: list[dict[Partition, int]] = field(default_factory=list)
    commit_faults: list[Outcome] = field(default_factory=list)
    faults: list[Exception] = field(default_factory=list)
    delay: float = 0.0
    asked: int = 0
    sized: int = 0
    unlisted: set[Partition] = field(default_factory=set)
    unchosen: set[Partition] = field(default_factory=set)
    opened: int = 0
    openers: list[str | None] = field(default_factory=list)
    closed: int = 0

    @classmethod
    def of(cls, *counts: int) -> Logs:
        """Make partitions 0, 1, … with so many records each."""
        logs = cls()
        for number, count in enumerate(counts):
            logs.add(number, count)
        return logs

    def add(self, number: int, count: int = 1) -> None:
        """Append records that say where they are."""
        values = self.values.setdefault(at(number), [])
        values += [b"%d:%d" % (number, len(values) + each) for each in range(count)]

    def end(self, partition: Partition) -> int:
        """Return the offset after the last record."""
        return len(self.values[partition])


class MemoryRanges(RangeReader):
    """A reader of `Logs`; positions are offsets."""

    broker: ClassVar[str] = "memory"

    def __init__(self, logs: Logs, group: str | None = "g") -> None:
        self.logs = logs
        self.group = group

    async def open(self) -> None:
        self.logs.opened += 1
        self.logs.openers.append(self.group)
        await self._answer()

    async def partitions(self) -> Sequence[Partition]:
        return sorted(self.logs.values.keys() - self.logs.unlisted - self.logs.unchosen)

    def is_chosen(self, partition: Partition) -> bool:
        return partition not in self.logs.unchosen

    async def positions(
        self, partitions: Collection[Partition], at: Start
    ) -> Mapping[Partition, Position | None]:
        self.logs.asked += 1
        assert not self.logs.unchosen & set(partitions)
        await self._answer()
        return {each: self._position(each, at) for each in partitions}

    def _position(self, partition: Partition, at: Start) -> int | None:
        if partition not in self.logs.values:
            return None
        if isinstance(at, AtPosition):
            return int(at.position)
        if at is StartPoint.LATEST:
            return self.logs.end(partition)
        if at is StartPoint.BROKER:
            return self.logs.group.get(partition)
        return self.logs.first.get(partition, 0)

    async def records(self, ranges: Collection[PartitionRange]) -> Mapping[Partition, int]:
        return {each.partition: max(0, each.stop - each.start) for each in ranges}

    async def cut(self, wanted: PartitionRange, records: int) -> Position:
        return min(wanted.start + records, wanted.stop)

    async def record_size(self, partitions: Collection[Partition]) -> Mapping[Partition, float]:
        self.logs.sized += 1
        return dict.fromkeys(partitions, 10.0)

    async def read_range(
        self, wanted: PartitionRange, *, with_headers: bool = False, max_bytes: int = 8 * 2**20
    ) -> AsyncIterator[Columns]:
        end = self.logs.end(wanted.partition)
        if wanted.start < self.logs.first.get(wanted.partition, 0) or wanted.start > end:
            raise PositionOutOfRangeError(f"{wanted} is gone")
        for start in range(wanted.start, wanted.stop, 10):
            await self._answer()
            positions = range(start, min(start + 10, wanted.stop))
            values = self.logs.values[wanted.partition][positions.start : positions.stop]
            yield Columns(positions, values, values, [1000 + each for each in positions])

    async def commit(self, positions: Mapping[Partition, Position]) -> Mapping[Partition, Outcome]:
        assert not self.logs.unchosen & positions.keys()
        fault = self.logs.commit_faults.pop(0) if self.logs.commit_faults else None
        if fault is not None:
            return dict.fromkeys(positions, fault)
        self.logs.commits.append(dict(positions))
        self.logs.group.update(positions)
        return dict.fromkeys(positions, Outcome.durable())

    def encode_position(self, position: Position) -> str:
        return str(position)

    def decode_position(self, text: str) -> Position:
        if not text.isdecimal():
            raise CheckpointFormatError(f"{text!r} is no offset")
        return int(text)

    async def aclose(self) -> None:
        self.logs.closed += 1

    async def _answer(self) -> None:
        await asyncio.sleep(self.logs.delay)
        if self.logs.faults:
            raise self.logs.faults.pop(0)


@dataclass(frozen=True)
class MemorySource:
    """What `PullOptions` opens readers from."""

    logs: Logs
    group: str | None = "g"
    broker: ClassVar[str] = "memory"

    def for_tasks(self, _outage: float | None = None) -> MemorySource:
        """Return the same without the group."""
        return replace(self, group=None)

    def open_reader(self) -> RangeReader:
        """Make a reader."""
        return MemoryRanges(self.logs, self.group)


def memory_options(logs: Logs, group: str | None = "g", **options: Any) -> PullOptions:
    """Return the options of a query that reads ``logs``; all else as in Spark's texts."""
    texts = {name: str(value) for name, value in options.items()}
    parsed = PullOptions.parse({"url": "kafka://nowhere:9092/t?group=g", **texts})
    return replace(parsed, source=MemorySource(logs, group))  # type: ignore[arg-type]  # a fake


@dataclass(frozen=True)
class Openings:
    """What `Connections` needs of options, and nothing else."""

    logs: Logs
    name: str = "one"

    def identity(self) -> Hashable:
        """Return what tells two of them apart."""
        return self.name

    def open_reader(self) -> RangeReader:
        """Make a reader."""
        return MemoryRanges(self.logs)

    def __hash__(self) -> int:
        return hash(self.name)
