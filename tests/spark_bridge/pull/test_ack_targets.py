"""Claims about the two places that acks are made durable in."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from consumer_sdk.records import Assignment, Checkpoint, OutcomeKind, Partition, StartPoint
from consumer_sdk.records.flushes import AckFlush
from consumer_sdk.spark_bridge.pull.acks import AckTargets, stored_positions
from consumer_sdk.spark_bridge.pull.connections import Connections
from consumer_sdk.spark_bridge.pull.options.options import PullOptions
from consumer_sdk.spark_bridge.pull.planning.starts import Starts
from consumer_sdk.spark_bridge.pull.planning.stream_planner import resolved
from tests.spark_bridge.pull.memory_ranges import Logs, MemoryRanges, at, memory_options

COMMITTED = Starts(StartPoint.BROKER)


class Acker:
    """Writes acks of one query, as `Acks` does."""

    def __init__(self, options: PullOptions) -> None:
        self.connections = Connections()
        self.targets = AckTargets(options, self.connections)
        self.assignments: dict[Partition, Assignment] = {}

    def flush(self, partition: Partition, position: int) -> AckFlush:
        """Return what makes everything below ``position`` durable."""
        new = Assignment(partition, len(self.assignments) + 1)
        assignment = self.assignments.setdefault(partition, new)
        return AckFlush(assignment, 1, Checkpoint(resume=position))

    async def ack(self, **positions: int) -> list[OutcomeKind]:
        """Ack partitions named ``p0``, ``p1``, …; return what became of them."""
        flushes = [self.flush(at(int(name[1:])), to) for name, to in positions.items()]
        return [outcome.kind for outcome in await self.targets.write(flushes)]

    async def aclose(self) -> None:
        """Close all."""
        await self.targets.aclose()
        await self.connections.aclose()


def with_store(logs: Logs, directory: Path, **options: Any) -> PullOptions:
    """Return options with a store in a directory."""
    return memory_options(logs, store=f"sqlite://{directory}/state.db", **options)


async def test_an_ack_goes_to_the_store_and_to_the_group(tmp_path: Path) -> None:
    """Both know the same."""
    logs = Logs.of(9, 9)
    options = with_store(logs, tmp_path)
    acker = Acker(options)
    assert await acker.ack(p0=5, p1=7) == [OutcomeKind.DURABLE] * 2
    assert logs.group == {at(0): 5, at(1): 7}
    found = await stored_positions(options, MemoryRanges(logs), [at(0), at(1), at(2)])
    assert found == {at(0): 5, at(1): 7}
    await acker.aclose()


async def test_a_new_query_takes_the_store_over(tmp_path: Path) -> None:
    """Trap 9: Spark's checkpoint wins, also where the store is ahead of it."""
    logs = Logs.of(9)
    options = with_store(logs, tmp_path)
    first, second = Acker(options), Acker(options)
    await first.ack(p0=8)
    assert await second.ack(p0=3) == [OutcomeKind.DURABLE]
    assert await stored_positions(options, MemoryRanges(logs), [at(0)]) == {at(0): 3}
    assert await first.ack(p0=9) == [OutcomeKind.FENCED]
    await first.aclose()
    await second.aclose()


async def test_a_store_that_cannot_be_used_is_tried_again(tmp_path: Path) -> None:
    """Trap 5: its outage is an outcome, not an exception; the group hears of it all the same."""
    logs = Logs.of(9)
    (tmp_path / "state.db").mkdir()
    acker = Acker(with_store(logs, tmp_path))
    assert await acker.ack(p0=5) == [OutcomeKind.RETRY]
    assert logs.group == {at(0): 5}
    (tmp_path / "state.db").rmdir()
    assert await acker.ack(p0=6) == [OutcomeKind.DURABLE]
    await acker.aclose()


async def test_a_broker_that_is_down_is_tried_again() -> None:
    """Whether it is the connection or the commit that fails."""
    logs = Logs.of(9)
    acker = Acker(memory_options(logs))
    logs.faults = [OSError("down")]
    assert await acker.ack(p0=5) == [OutcomeKind.RETRY]
    assert await acker.ack(p0=5) == [OutcomeKind.DURABLE]
    await acker.aclose()


async def test_a_query_that_begins_where_the_group_stands_asks_its_store(tmp_path: Path) -> None:
    """``startingOffsets=committed``: the store first, then the broker, then the first record."""
    logs = Logs.of(9, 9, 9)
    logs.group = {at(0): 2, at(1): 4}
    options = with_store(logs, tmp_path, startingOffsets="committed")
    acker = Acker(options)
    await acker.targets.write([acker.flush(at(0), 7)])
    logs.group[at(0)] = 2
    partitions = [at(0), at(1), at(2)]
    found = await resolved(MemoryRanges(logs), options, options.stream_starts(), partitions)
    assert found == {at(0): 7, at(1): 4, at(2): 0}
    await acker.aclose()


async def test_a_store_that_cannot_be_read_is_no_empty_store(tmp_path: Path) -> None:
    """A query does not begin elsewhere because its store is down."""
    logs = Logs.of(9)
    (tmp_path / "state.db").mkdir()
    with pytest.raises(Exception, match=r"state\.db"):
        await resolved(MemoryRanges(logs), with_store(logs, tmp_path), COMMITTED, [at(0)])


def test_closing_twice_is_closing_once() -> None:
    """Also where nothing was opened."""
    acker = Acker(memory_options(Logs.of(1)))
    asyncio.run(acker.aclose())
    asyncio.run(acker.aclose())
