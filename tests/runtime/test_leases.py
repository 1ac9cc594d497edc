"""The runtime's part where leases say who reads: starts pinned as a time, ends told, what is refused.

The broker is the fake Kinesis, the only one so far that needs leases and knows no ends.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from consumer_sdk import AtTime, Consumer, Message
from consumer_sdk.abc import CheckpointStore
from consumer_sdk.checkpoints.positions import decode_sequence
from consumer_sdk.errors import ConfigurationError
from consumer_sdk.records import Partition
from consumer_sdk.stores import LocalStore, MemoryStore
from consumer_sdk.testing.faults import Faults
from consumer_sdk.testing.kinesis import FakeKinesis, FakeService, ShardLimits
from consumer_sdk.trackers import decode_checkpoint
from tests.adapters.kinesis.harness import QUICK, FakeAdapter, shard_id
from tests.adapters.kinesis.stage import SHARD, Stage, aggregated, play, text_of

PATIENCE = 300.0


class World:
    """A stream ``s``, and a store that may be opened again and again; in real time."""

    def __init__(self, make_store: Callable[[], CheckpointStore]) -> None:
        self.kinesis = FakeKinesis(limits=ShardLimits.none())
        self.kinesis.create_stream("s")
        self.make_store = make_store
        self.seen: list[str] = []

    def put(self, *values: str) -> None:
        """Stores records."""
        for value in values:
            self.kinesis.put("s", value.encode())

    def consumer(self, **options: Any) -> Consumer:
        """One with a handle on the store of its own."""
        adapter = FakeAdapter(
            "s", group="g", make_service=lambda: FakeService(self.kinesis, "s"), **QUICK
        )
        return Consumer(adapter, store=self.make_store(), flush_interval=0.0, **options)

    async def until(self, consumer: Consumer, done: Callable[[], bool]) -> None:
        """Runs a consumer until a condition on what was seen holds."""

        async def handle(message: Message) -> None:
            self.seen.append(text_of(message))
            if done():
                consumer.stop()

        async with consumer, asyncio.timeout(PATIENCE):
            await consumer.run(handle)

    async def begin_at_latest(self) -> dict[str, str]:
        """A consumer of the group was there; returns what it pinned."""
        async with (
            self.consumer(start="latest"),
            asyncio.timeout(PATIENCE),
            self.store() as store,
        ):
            while not (pins := await store.pins("g")):
                await asyncio.sleep(0)
        return dict(pins)

    @asynccontextmanager
    async def store(self) -> AsyncIterator[CheckpointStore]:
        """For a look."""
        store = self.make_store()
        await store.open()
        try:
            yield store
        finally:
            await store.aclose()


@pytest.fixture(params=["memory", "local"])
def world(request: pytest.FixtureRequest, tmp_path: Path) -> World:
    """With each of the stores that are in the process."""
    if request.param == "memory":
        root = MemoryStore()
        return World(root.handle)
    return World(lambda: LocalStore(tmp_path / "store.db"))


# -- starts -------------------------------------------------------------------------------------


@pytest.mark.asyncio
async def test_latest_is_pinned_as_a_time_by_the_first_of_the_group(world: World) -> None:
    """Kinesis trap 23: who comes later, or comes back, starts where the group did."""
    now = world.kinesis.clock.wall()
    world.kinesis.put("s", b"old", time=now - 60)
    ((name, text),) = (await world.begin_at_latest()).items()
    assert name.startswith("s@arn:")
    pinned = json.loads(text)
    assert pinned.keys() == {"version", "time"}
    assert now - 2 <= pinned["time"] <= now + PATIENCE
    world.put("while nobody was there")
    await world.until(world.consumer(start="latest"), lambda: bool(world.seen))
    assert world.seen == ["while nobody was there"]


@pytest.mark.asyncio
async def test_time_is_pinned_as_it_was_given_first(world: World) -> None:
    """Members that count back from their own start give different ones."""
    now = world.kinesis.clock.wall()
    for age in (50, 40, 30):
        world.kinesis.put("s", f"{age}".encode(), time=now - age)
    await world.until(world.consumer(start=AtTime(now - 45)), lambda: len(world.seen) == 2)
    async with world.store() as store:
        (text,) = (await store.pins("g")).values()
        await store.delete("g", await store.list("g"))
    assert json.loads(text)["time"] == now - 45
    await world.until(world.consumer(start=AtTime(now - 35)), lambda: len(world.seen) == 4)
    assert world.seen == ["40", "30", "40", "30"]


@pytest.mark.asyncio
async def test_child_of_a_group_that_began_at_latest_is_read_wholly(world: World) -> None:
    """Kinesis trap 20: it is newer than the pin, so that nothing of it is left out."""
    await world.begin_at_latest()
    world.kinesis.split("s", SHARD)
    world.put("first of the child")
    await world.until(world.consumer(start="latest"), lambda: bool(world.seen))
    assert world.seen == ["first of the child"]


# -- ends ---------------------------------------------------------------------------------------


@pytest.mark.asyncio
async def test_end_is_durable_in_the_store_and_the_closed_shard_is_not_read_again(
    world: World,
) -> None:
    """Kinesis trap 21: SHARD_END is a part of the checkpoint; a restart begins at the children."""
    world.put("parent")
    world.kinesis.split("s", SHARD)
    world.put("child")
    await world.until(world.consumer(), lambda: len(world.seen) == 2)
    async with world.store() as store:
        texts = await store.peek("g", [Partition("s", SHARD)])
    text = texts[Partition("s", SHARD)]
    assert text is not None
    checkpoint = decode_checkpoint(
        text,
        broker="kinesis",
        partition=Partition("s", SHARD),
        identity=None,
        decode_position=decode_sequence,
    )
    assert checkpoint.ended
    world.put("later")
    await world.until(world.consumer(), lambda: len(world.seen) == 3)
    assert world.seen == ["parent", "child", "later"]


def held_back(nacked: set[str], seen: list[str]) -> Any:
    """A handler that fails what is in ``nacked``."""

    async def handle(message: Message) -> None:
        seen.append(text_of(message))
        if text_of(message) in nacked:
            raise ValueError("not yet")

    return handle


def test_record_that_keeps_failing_holds_the_children_back_until_it_is_settled() -> None:
    """Kinesis trap 21: the parent has ended for the reader, and not for the group."""

    async def test(stage: Stage) -> None:
        stage.put("a", "tail")
        stage.kinesis.split("s", SHARD)
        stage.put("child")
        nacked: set[str] = {"tail"}
        seen: list[str] = []
        async with stage.consumer() as consumer:
            loop = asyncio.get_running_loop()
            loop.call_later(5, lambda: seen.append("-- settled from here on"))
            loop.call_later(5, nacked.clear)
            loop.call_later(300, consumer.stop)
            await consumer.run(held_back(nacked, seen))
        before, after = _parts(seen, "-- settled from here on")
        assert set(before) == {"a", "tail"}
        assert after == ["tail", "child"]

    play(test)


def _parts(values: Sequence[str], mark: str) -> tuple[list[str], list[str]]:
    at = list(values).index(mark)
    return list(values[:at]), list(values[at + 1 :])


def test_broker_is_not_told_of_an_end_that_the_store_has_not() -> None:
    """Kinesis trap 9: children would start, and a crash would read the parent again after them."""

    async def test(stage: Stage) -> None:
        stage.put("parent")
        stage.kinesis.split("s", SHARD)
        stage.put("child")
        faults = Faults(error=stage.store_error)
        faults.fail_next("save", times=20)
        faults.fail_next("read_back", times=20)
        seen: list[str] = []
        async with stage.consumer(store=stage.store.handle(faults=faults)) as consumer:
            loop = asyncio.get_running_loop()
            loop.call_later(10, lambda: seen.append("-- ten seconds"))
            loop.call_later(200, consumer.stop)
            await consumer.run(held_back(set(), seen))
        assert seen == ["parent", "-- ten seconds", "child"]

    play(test)


@pytest.mark.parametrize("strike", ["before", "after"])
def test_lease_that_did_not_hear_of_the_end_is_told_by_whoever_takes_it_next(strike: Any) -> None:
    """Kinesis trap 21: the store has it, the lease has not; the records are not read again."""

    async def test(stage: Stage) -> None:
        stage.put("parent")
        stage.kinesis.split("s", SHARD)
        stage.put("child")
        faults = Faults(error=stage.store_error)
        seen: list[str] = []
        async with stage.consumer(store=stage.store.handle(faults=faults)) as consumer:
            loop = asyncio.get_running_loop()
            loop.call_later(0.3, lambda: faults.fail_next("lease_write", strike, times=3))
            loop.call_later(100, consumer.stop)
            await consumer.run(held_back(set(), seen))
        assert seen == ["parent", "child"]

    play(test)


@pytest.mark.parametrize("parents", [2, 4])
def test_two_members_keep_the_order_of_a_key_through_a_split_and_a_merge(parents: int) -> None:
    """Kinesis trap 20: parents on different members; all children wait for all of their parents."""

    async def test(stage: Stage) -> None:
        seen: list[str] = []
        members = [stage.consumer() for _ in range(2)]
        loop = asyncio.get_running_loop()
        changes: list[Callable[[], object]] = [
            lambda: stage.kinesis.merge("s", shard_id(0), shard_id(1)),
            lambda: stage.kinesis.split("s", shard_id(parents)),
        ]

        def put(number: int) -> None:
            for key in "abcdefgh":
                stage.kinesis.put("s", f"{key}{number:02}".encode(), key)
            if number in (10, 20):
                changes.pop(0)()

        async def run(member: Consumer) -> None:
            async with member:
                loop.call_later(200, member.stop)
                await member.run(held_back(set(), seen))

        for number in range(30):
            loop.call_later(60 + number * 2, put, number)
        await asyncio.gather(*map(run, members))
        for key in "abcdefgh":
            mine = [value for value in seen if value[0] == key]
            assert mine == [f"{key}{number:02}" for number in range(30)]

    play(test, shards=parents)


# -- refused ------------------------------------------------------------------------------------


class Bare(CheckpointStore):
    """A store of somebody else's, without leases."""

    async def _never(self) -> None:
        """None of it is called: it is refused before."""

    open = claim = save = forget = peek = list = delete = pin = pins = unpin = aclose = _never  # type: ignore[assignment]


@pytest.mark.parametrize("store", [None, Bare()], ids=["none", "bare"])
def test_group_without_a_store_that_has_leases_is_refused(store: CheckpointStore | None) -> None:
    """When it is opened; the message says what to do."""

    async def test(stage: Stage) -> None:
        adapter = stage.actor().adapter
        with pytest.raises(ConfigurationError, match=r"store=LocalStore\(…\) or ZooKeeperStore"):
            async with Consumer(adapter, store=store):
                pass

    play(test)


def test_application_that_starts_anew_is_refused() -> None:
    """The leases of shards that have ended would leave those out."""

    async def test(stage: Stage) -> None:
        with pytest.raises(ConfigurationError, match="give a new application another group="):
            async with stage.consumer(restart="from_start", application_id="a"):
                pass

    play(test)


def test_largest_lag_in_positions_is_refused() -> None:
    """Sequence numbers count nothing."""

    async def test(stage: Stage) -> None:
        with pytest.raises(ConfigurationError, match="leave max_lag= out"):
            async with stage.consumer(max_lag=10):
                pass

    play(test)


def test_stop_in_the_middle_of_an_aggregate_resumes_there() -> None:
    """Kinesis trap 29: the rest of it comes, and nothing twice."""

    async def test(stage: Stage) -> None:
        users = [(b"k", f"{number}".encode()) for number in range(10)]
        stage.kinesis.put("s", aggregated(*users))
        seen: list[str] = []
        while len(seen) < 10:
            async with stage.consumer(fetch_records=2, max_in_flight=1) as consumer:
                await consumer.run(_stopping(consumer, seen, min(len(seen) + 3, 10)))
        assert seen == [f"{number}" for number in range(10)]

    play(test)


def _stopping(consumer: Consumer, seen: list[str], count: int) -> Any:
    async def handle(message: Message) -> None:
        seen.append(text_of(message))
        if len(seen) == count:
            consumer.stop()

    return handle
