"""Fetches from a real Kafka: gaps, faults, pauses, and a client that has died."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from consumer_sdk.adapters.kafka import KafkaAdapter
from consumer_sdk.errors import AdapterError, PositionOutOfRangeError
from consumer_sdk.records import AtPosition, StartPoint
from consumer_sdk.testing.conformance.adapters import Record
from consumer_sdk.testing.conformance.adapters.harness import Member
from tests.adapters.kafka.world import World, numbered, runner_of, values

pytestmark = pytest.mark.kafka


async def test_compacted_topic_is_read_over_its_gaps(world: World) -> None:
    """T10: positions jump, nothing is lost, and the last position is reached."""
    topic = await world.kafka.create_stream(
        cleanup_policy="compact",
        segment_ms="100",
        min_cleanable_dirty_ratio="0.0",
        max_compaction_lag_ms="1",
        delete_retention_ms="0",
    )
    for round_ in range(4):
        rows = [Record(b"%d" % (10 * round_ + n), key=b"%d" % (n % 3)) for n in range(10)]
        await world.kafka.append(topic, rows)
        await asyncio.sleep(0.12)  # the broker rolls segments by its own clock
    await world.kafka.append(topic, [Record(b"last", key=b"last")])
    async with asyncio.timeout(300):
        while len(seen := await _positions(world, topic)) > 20:
            await asyncio.sleep(0.2)
    assert seen[-1] == 40
    assert seen == sorted(set(seen))


async def _positions(world: World, topic: str) -> list[int]:
    """All positions that a new member finds, up to the end."""
    async with world.member(topic, group=None) as member:
        (held,) = await member.holding(1)
        end = (await member.adapter.positions([held], StartPoint.LATEST))[held]
        seen: list[int] = []
        while not member.runs or member.runs[-1].next_position != end:
            seen += [m.position for run in await member.fetch() for m in run.messages]
        return seen


@pytest.mark.parametrize("isolation", ["read_committed", "read_uncommitted"])
async def test_transactions_are_read_as_the_isolation_level_says(
    world: World, isolation: str
) -> None:
    """T10: aborted records are left out; markers take positions but bring nothing."""
    topic = await world.kafka.create_stream()
    await world.kafka.append(topic, numbered(0, 2))
    await world.kafka.skip(topic)  # three aborted records and a marker
    async with world.kafka.transaction() as producer:
        await world.kafka.append(topic, numbered(2, 4), 0, producer)
    async with world.member(topic, isolation_level=isolation) as member:
        (held,) = await member.holding(1)
        committed = isolation == "read_committed"
        found = await member.read(4 if committed else 7)
        numbers = [int(m.value or b"") for m in found if m.value != b"aborted"]
        assert numbers == [0, 1, 2, 3]
        while member.runs[-1].next_position != 9:
            await member.fetch()
        assert (await member.adapter.lag([held]))[held] == 0


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
async def test_what_a_real_broker_stores_comes_as_it_was_sent(world: World, codec: str) -> None:
    """With each codec, and nulls."""
    topic = await world.kafka.create_stream()
    producer = await world.kafka.start_producer(compression_type=codec, linger_ms=5)
    rows = [
        Record(b"v%d" % n, b"k", (("h", b"%d" % n),) if n % 2 else (), 1_700_000_000_000 + n)
        for n in range(50)
    ]
    rows += [Record(None, b"k", (), 1), Record(b"", None, (), 2)]
    await world.kafka.append(topic, rows, 0, producer)
    async with world.member(topic, group=None) as member:
        messages = await member.read(52)
    assert [Record(m.value, m.key, tuple(m.headers), m.timestamp) for m in messages] == rows


async def test_bytes_that_nobody_can_decode_come_as_they_are(world: World) -> None:
    """T14: decoding is the handler's business, so that a bad record can be dead-lettered."""
    topic = await world.kafka.create_stream()
    await world.kafka.append(topic, [Record(b"\xff\xfe", b"\x80"), Record(b"good")])
    async with world.member(topic) as member:
        assert [m.value for m in await member.read(2)] == [b"\xff\xfe", b"good"]


async def test_out_of_range_is_one_fault_and_no_hot_loop(world: World) -> None:
    """T12: the client's "none" policy raised 4 322 errors in 2 s; "earliest" jumps in silence."""
    topic = await world.kafka.create_stream()
    await world.kafka.append(topic, numbered(0, 10))
    await world.kafka.truncate(topic, 6)
    owner = world.owner()
    owner.start = AtPosition(2)
    async with world.member(topic, owner) as member:
        run = await member.read_fault()
        assert isinstance(run.fault, PositionOutOfRangeError)
        assert f"{topic}[0]" in str(run.fault)
        for _ in range(5):
            assert await member.fetch() == []
        owner.start = StartPoint.EARLIEST
        owner.held.clear()
        member.adapter.drop(run.assignment)
        assert values(await member.read(4)) == [6, 7, 8, 9]


async def test_retention_that_overtakes_a_paused_partition_is_a_fault(world: World) -> None:
    """T12: the log start passes the position while nothing is fetched."""
    topic = await world.kafka.create_stream()
    await world.kafka.append(topic, numbered(0, 10))
    async with world.member(topic) as member:
        (held,) = await member.holding(1)
        await member.read(10)
        member.adapter.pause(held)
        while _session(member).grants.of(held).cursor.is_asked:  # what is on its way is kept
            await member.read_nothing()
        await world.kafka.append(topic, numbered(10, 20))
        await world.kafka.truncate(topic, 15)
        member.adapter.resume(held)
        assert isinstance((await member.read_fault()).fault, PositionOutOfRangeError)


async def test_one_fetch_brings_what_several_partitions_have(world: World) -> None:
    """Up to the limits, every partition that has something is in the answer."""
    topic = await world.kafka.create_stream(4)
    for partition in range(4):
        await world.kafka.append(topic, numbered(0, 5), partition)
    async with world.member(topic, fetch_min_bytes=200) as member:
        await member.holding(4)
        most = 0
        found = 0
        while found < 20:
            runs = await member.fetch(max_wait=5)
            found += sum(len(run.messages) for run in runs)
            most = max(most, len(runs))
        assert most > 1


async def test_paused_partitions_keep_what_was_fetched_for_them(world: World) -> None:
    """The client's getmany throws it away and fetches it again; here it waits."""
    topic = await world.kafka.create_stream()
    await world.kafka.append(topic, numbered(0, 10))
    async with world.member(topic) as member:
        (held,) = await member.holding(1)
        (run,) = await member.fetch(max_records=3, max_wait=world.kafka.patience)
        member.adapter.pause(held)
        assert await member.fetch() == []  # all are paused: nothing, rather than everything
        assert _session(member).grants.of(held).cursor.queue
        member.adapter.resume(held)
        assert values(run.messages + await member.read(7)) == list(range(10))


@pytest.mark.parametrize("which", ["fetch", "membership"])
async def test_dead_task_is_an_error_not_idleness(world: World, which: str) -> None:
    """T32: nothing in the client watches its own tasks; the consumer would idle for ever."""
    topic = await world.kafka.create_stream()
    async with world.member(topic) as member:
        await member.holding(1)
        if which == "fetch":
            fetcher = _session(member).buffer._fetcher
            fetcher.cursors.look = None  # a defect
            fetcher.kick()
        else:
            runner_of(member)._task.cancel()
        with pytest.raises(AdapterError, match=r"has ended \(.*close the consumer"):
            async with asyncio.timeout(50):
                while True:
                    await member.fetch(max_wait=60)


async def test_broker_that_answers_no_fetch_is_an_error_not_idleness(world: World) -> None:
    """T32: a fetch that nobody answers any more looks like an idle topic."""
    topic = await world.kafka.create_stream()
    async with world.member(topic) as member:
        await member.holding(1)
        await member.read_nothing()
        _session(member)._stall._limit = 1.0  # the joining may take longer
        _session(member).buffer._fetcher._cluster.send = _unanswered
        with pytest.raises(AdapterError, match="no answer"):
            async with asyncio.timeout(35):
                while True:
                    await member.fetch()


async def _unanswered(*_: object) -> None:
    await asyncio.sleep(3600)


def _session(member: Member) -> Any:
    assert isinstance(member.adapter, KafkaAdapter)
    return member.adapter._session
