"""Where partitions start, and what a group has committed of them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Mapping
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from aiokafka import TopicPartition
from aiokafka.errors import KafkaConnectionError

from consumer_sdk.adapters.assignment_book import AssignmentBook
from consumer_sdk.adapters.kafka.client.lookups import EARLIEST, LATEST, GroupOffset, ListedOffset
from consumer_sdk.adapters.kafka.client.topics import Topic
from consumer_sdk.adapters.kafka.commits.metadata import at_offset, write_metadata
from consumer_sdk.adapters.kafka.consumer import offsets as module
from consumer_sdk.adapters.kafka.consumer.grants import Grant
from consumer_sdk.adapters.kafka.consumer.offsets import CommittedOffsets, Offsets
from consumer_sdk.errors import TransientAdapterError
from consumer_sdk.records import AtPosition, AtTime, Checkpoint, Committed, Start, StartPoint
from consumer_sdk.testing.conformance.adapters import Record
from tests.adapters.kafka.world import World, cluster_of

ONE, TWO = TopicPartition("t", 0), TopicPartition("t", 1)
ENDS = {ONE: 70, TWO: 90}


class ScriptedCluster:
    """Answers where times lie; what it does not know of a time is not that new."""

    def __init__(self) -> None:
        self.times: dict[int, dict[TopicPartition, int | None]] = {
            EARLIEST: {ONE: 7, TWO: 9},
            LATEST: dict(ENDS),
        }
        self.asked: list[tuple[int, list[TopicPartition]]] = []
        self.levels: set[int] = set()

    async def list_offsets(
        self, times: Mapping[TopicPartition, int], *, level: int
    ) -> tuple[dict[TopicPartition, ListedOffset | None], dict[TopicPartition, Exception]]:
        """As `Cluster` does."""
        (time,) = set(times.values())
        self.asked.append((time, sorted(times)))
        self.levels.add(level)
        found = self.times.get(time, {})
        offsets = {tp: found.get(tp) for tp in times}
        return {tp: None if at is None else ListedOffset(at, 0) for tp, at in offsets.items()}, {}


class ScriptedCoordinator:
    """Answers what the group has committed."""

    def __init__(self) -> None:
        self.commits: dict[TopicPartition, GroupOffset | None] = {}
        self.error: Exception | None = None
        self.is_silent = False
        self.asked: list[list[TopicPartition]] = []

    async def committed(
        self, tps: Collection[TopicPartition]
    ) -> dict[TopicPartition, GroupOffset | None]:
        """As `GroupCoordinator` does."""
        self.asked.append(sorted(tps))
        if self.is_silent:
            await asyncio.Event().wait()
        if self.error is not None:
            raise self.error
        return {tp: self.commits.get(tp) for tp in tps}


class Bench:
    """The offsets of a group, with two grants."""

    def __init__(self, timeout: float = 5.0) -> None:
        self.cluster, self.coordinator = ScriptedCluster(), ScriptedCoordinator()
        cluster: Any = self.cluster
        coordinator: Any = self.coordinator
        self.offsets = Offsets(cluster, coordinator, level=1, timeout=timeout)
        self.grants = AssignmentBook[Grant]()
        self.one, self.two = Grant(ONE), Grant(TWO)
        self.grants.offer(self.one)
        self.grants.offer(self.two)
        self.has_room = True
        limit: Any = SimpleNamespace(has_room_for_head=self._has_room)
        self.committed = CommittedOffsets(self.offsets, self.grants, limit, "g")

    async def _has_room(self) -> bool:
        return self.has_room

    async def resolve(self, start: Start | None, *, has_group: bool = True) -> tuple[int, ...]:
        """Where both begin, if both start in the same way."""
        self.one.start = self.two.start = start
        found = await self.offsets.resolve([self.one, self.two], has_group=has_group)
        return tuple(found[grant] for grant in (self.one, self.two) if grant in found)

    async def read(self, identity: str | None = None) -> Committed | None:
        """What the group's commit of the first partition says."""
        return (await self.committed.read({self.one.assignment: identity}))[self.one.assignment]


@pytest.mark.parametrize(
    "start, offsets, questions",
    [
        (StartPoint.EARLIEST, (7, 9), [EARLIEST]),
        (StartPoint.LATEST, (70, 90), [LATEST]),
        (AtPosition(0), (0, 0), []),
        (AtPosition(44), (44, 44), []),
        (StartPoint.ENDED, (), []),
        (None, (), []),
    ],
    ids=repr,
)
async def test_start_is_an_offset_of_each_partition(
    start: Start | None, offsets: tuple[int, ...], questions: list[int]
) -> None:
    """One question for all partitions, and none where there is nothing to ask."""
    bench = Bench()
    assert await bench.resolve(start) == offsets
    assert bench.cluster.asked == [(time, [ONE, TWO]) for time in questions]
    assert bench.cluster.levels <= {1}


async def test_partitions_that_start_in_different_ways_are_all_resolved() -> None:
    """Each kind of start has its own question; what has ended, or has no start, is left out."""
    bench = Bench()
    ended, unanswered = Grant(TopicPartition("t", 2)), Grant(TopicPartition("t", 3))
    bench.one.start, bench.two.start = StartPoint.LATEST, AtPosition(5)
    ended.start = StartPoint.ENDED
    grants = [ended, bench.one, unanswered, bench.two]
    assert await bench.offsets.resolve(grants, has_group=True) == {bench.one: 70, bench.two: 5}


async def test_time_that_no_record_has_reached_is_the_end_from_before_it_was_asked() -> None:
    """What comes between the two questions may be as new as the time, and is not skipped."""
    bench = Bench()
    bench.cluster.times[2_000] = {ONE: 33, TWO: None}
    assert await bench.resolve(AtTime(2.0)) == (33, 90)
    assert [time for time, _ in bench.cluster.asked] == [LATEST, 2_000]


@pytest.mark.parametrize("offset", [0, 40])
async def test_group_goes_on_where_it_stands_and_begins_with_the_first_record_elsewhere(
    offset: int,
) -> None:
    """Offset 0 is a position; without a position nothing may be skipped."""
    bench = Bench()
    stands = bench.coordinator.commits[ONE] = GroupOffset(offset, "", 3)
    assert await bench.resolve(StartPoint.BROKER) == (offset, 9)
    assert (bench.one.stands, bench.two.stands) == (stands, None)
    assert bench.coordinator.asked == [[ONE, TWO]]
    assert bench.cluster.asked == [(EARLIEST, [TWO])]


async def test_group_that_stands_everywhere_is_not_asked_for_more() -> None:
    """A start of a thousand partitions is one question."""
    bench = Bench()
    bench.coordinator.commits = {ONE: GroupOffset(40, ""), TWO: GroupOffset(50, "")}
    assert await bench.resolve(StartPoint.BROKER) == (40, 50)
    assert bench.cluster.asked == []


async def test_consumer_without_a_group_begins_with_the_first_record() -> None:
    """No coordinator is asked; there may be none."""
    bench = Bench()
    bench.coordinator.commits = {ONE: GroupOffset(40, "")}
    assert await bench.resolve(StartPoint.BROKER, has_group=False) == (7, 9)
    assert bench.coordinator.asked == []


@pytest.mark.parametrize("start", [StartPoint.EARLIEST, StartPoint.BROKER, AtTime(2.0)], ids=repr)
async def test_partition_that_the_broker_does_not_place_is_asked_about_later(start: Start) -> None:
    """No position is no position: a start at 0 would deliver all of it, or be out of range."""
    bench = Bench()
    bench.cluster.times = {}
    with pytest.raises(TransientAdapterError, match=r"where t\[0\], t\[1\] stands"):
        await bench.resolve(start)


@pytest.mark.parametrize("start", [StartPoint.BROKER, StartPoint.ENDED])
async def test_start_that_is_no_place_of_the_log_has_no_offset(start: Start) -> None:
    """The broker is not asked for it."""
    bench = Bench()
    assert await bench.offsets.at([ONE, TWO], start) == {ONE: None, TWO: None}
    assert bench.cluster.asked == []


@pytest.mark.parametrize("error", [KafkaConnectionError(), OSError("reset"), TimeoutError()])
async def test_commits_that_the_coordinator_does_not_tell_may_be_asked_for_again(
    error: Exception,
) -> None:
    """The error names the partitions, and what the client said is its cause."""
    bench = Bench()
    bench.coordinator.error = error
    with pytest.raises(TransientAdapterError, match=r"positions of t\[0\]") as raised:
        await bench.offsets.committed([ONE])
    assert raised.value.__cause__ is error


async def test_silent_coordinator_is_given_up() -> None:
    """The owner's start waits for it."""
    bench = Bench(timeout=0.01)
    bench.coordinator.is_silent = True
    with pytest.raises(TransientAdapterError, match="positions of"):
        await bench.offsets.committed([ONE])


async def test_partitions_of_a_topic_are_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever order the broker has."""

    async def describe(_cluster: object, names: list[str]) -> dict[str, Topic]:
        return {name: Topic(name, 0, None, frozenset({8, 0, 1}), 1) for name in names}

    monkeypatch.setattr(module, "describe_topics", describe)
    assert await Bench().offsets.partitions("t") == [0, 1, 8]


# -- what is beside the offset ---------------------------------------------------------------------

HOLED = Checkpoint(4, 5, ((7, 9),), {5: (3, 60.0)}, identity="id")


def metadata_of(checkpoint: Checkpoint, offset: int = 5) -> str:
    """As the group commits it for the first partition."""
    partition = Grant(ONE).assignment.partition
    text: str = write_metadata(checkpoint, offset, group="g", partition=partition, limit=4096).data
    return text


async def test_commits_are_read_with_what_is_beside_their_offsets(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Each assignment has its own; the grants know where the group stands."""
    bench = Bench()
    stands = bench.coordinator.commits[TWO] = GroupOffset(0, "of another program", 3)
    ours = bench.coordinator.commits[ONE] = GroupOffset(5, metadata_of(HOLED), 2)
    one, two = bench.one.assignment, bench.two.assignment
    gone = replace(two, epoch=two.epoch + 1)
    assert await bench.committed.read({one: "id", two: None, gone: None}) == {
        one: Committed(HOLED, is_copy=False),
        two: Committed(at_offset(0), is_foreign=True),
        gone: Committed(at_offset(0), is_foreign=True),
    }
    assert (bench.one.stands, bench.two.stands) == (ours, stands)
    assert [record.levelno for record in caplog.records] == [logging.WARNING] * 2
    assert "t/1: of the commit of group 'g', the offset 0 alone counts" in caplog.text


async def test_partition_without_a_commit_has_none() -> None:
    """It begins as its owner decides."""
    bench = Bench()
    assert await bench.read() is None
    assert bench.one.stands is None


async def test_commit_for_an_earlier_topic_of_the_name_leaves_the_offset() -> None:
    """Its ranges are of records that are gone."""
    bench = Bench()
    bench.coordinator.commits[ONE] = GroupOffset(5, metadata_of(HOLED))
    assert await bench.read("other") == Committed(at_offset(5), is_copy=False, is_partial=True)


@pytest.mark.parametrize(
    "has_room, text, committed, warnings",
    [
        (True, "", Committed(at_offset(5), is_foreign=True), 1),
        (False, "", Committed(at_offset(5), is_copy=True), 0),
        (False, "of another program", Committed(at_offset(5), is_foreign=True), 1),
        (False, metadata_of(HOLED), Committed(HOLED, is_copy=False), 0),
    ],
    ids=["reset", "no-room-for-a-mark", "another-program", "ours"],
)
async def test_commit_without_a_mark_is_a_reset_where_ours_have_one(
    *,
    has_room: bool,
    text: str,
    committed: Committed,
    warnings: int,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A store's ranges would be dropped at each restart: without room, our own commits have no mark."""
    bench = Bench()
    bench.has_room = has_room
    bench.coordinator.commits[ONE] = GroupOffset(5, text)
    assert await bench.read("id") == committed
    assert len(caplog.records) == warnings


# -- a real broker ---------------------------------------------------------------------------------


@pytest.mark.kafka
@pytest.mark.parametrize("question", [LATEST, 2_000])
async def test_record_that_comes_between_two_questions_is_not_skipped(
    world: World, question: int
) -> None:
    """A start at a time that no record has reached yet is the end as it was before."""
    topic = await world.kafka.create_stream()
    await world.kafka.append(topic, [Record(b"old", timestamp=1_000)])
    async with world.member(topic) as member:
        await member.holding(1)
        cluster = cluster_of(member)
        real = cluster.list_offsets

        async def race(times: Any, **options: Any) -> Any:
            answer = await real(times, **options)
            if question in times.values():
                await world.kafka.append(topic, [Record(b"new", timestamp=2_500)])
            return answer

        cluster.list_offsets = race
        session: Any = member.adapter._session  # type: ignore[attr-defined]  # Kafka's
        (grant,) = session.grants
        grant.start = AtTime(2.0)
        assert await session.offsets.resolve([grant], has_group=True) == {grant: 1}
