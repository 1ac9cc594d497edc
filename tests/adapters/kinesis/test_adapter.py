"""The adapter as the runtime sees it: its life, its fetches, its policies."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from consumer_sdk import ConsumerClosedError, Message
from consumer_sdk.adapters.kinesis import KinesisAdapter
from consumer_sdk.errors import (
    AdapterError,
    ConfigurationError,
    TransientAdapterError,
)
from consumer_sdk.records import (
    AckFlush,
    AtPosition,
    Checkpoint,
    OutcomeKind,
    Start,
    StartPoint,
)
from consumer_sdk.testing.faults import FaultRates, Faults
from consumer_sdk.testing.kinesis import FakeService, Quirks
from tests.adapters.kinesis.harness import shard_id
from tests.adapters.kinesis.stage import SHARD, Actor, Stage, play, text_of, values_of

BIG = "x" * 600


class Closing(FakeService):
    """Counts how often it was closed."""

    closed = 0

    async def aclose(self) -> None:
        """Counts."""
        self.closed += 1


def closing(stage: Stage, actor: Actor) -> Closing:
    """Gives the member a service that counts its end."""
    service = Closing(stage.kinesis, "s", actor.faults)
    actor.adapter._make = lambda: service
    return service


# -- life ---------------------------------------------------------------------------------------

Call = Callable[[KinesisAdapter], Awaitable[Any]]

CALLS: dict[str, Call] = {
    "fetch": lambda a: a.fetch(max_records=1, max_bytes=1, max_wait=1),
    "lag": lambda a: a.lag([]),
    "partitions": lambda a: a.partitions("s"),
    "positions": lambda a: a.positions([], StartPoint.EARLIEST),
    "run": lambda a: a.run(),
    "time": lambda a: a.time(),
}


@pytest.mark.parametrize("name", CALLS)
def test_call_before_open_is_an_error_that_says_so(name: str) -> None:
    """Not an AttributeError."""

    async def test(stage: Stage) -> None:
        with pytest.raises(ConsumerClosedError, match="is not open"):
            await CALLS[name](stage.actor().adapter)

    play(test)


@pytest.mark.parametrize("name", [name for name in CALLS if name != "run"])
def test_call_after_the_end_is_an_error_that_says_so(name: str) -> None:
    """`run` of a closed adapter has nothing to do."""

    async def test(stage: Stage) -> None:
        member = await stage.member()
        await member.adapter.aclose()
        with pytest.raises(ConsumerClosedError, match="closed; make a new one"):
            await CALLS[name](member.adapter)
        await member.adapter.run()

    play(test)


def test_late_calls_about_a_shard_do_nothing_before_open_and_after_the_end() -> None:
    """Kinesis trap 5: the runtime's last calls may come late."""

    async def test(stage: Stage) -> None:
        member = stage.actor()
        other = await stage.member()
        await other.holding(SHARD)
        held = other.assignment()
        await other.adapter.aclose()
        for adapter in (member.adapter, other.adapter):
            adapter.pause(held)
            adapter.resume(held)
            adapter.drop(held)
            (outcome,) = await adapter.commit([AckFlush(held, 1, Checkpoint(ended=True))])
            assert outcome.kind is OutcomeKind.FENCED

    play(test)


def test_adapter_is_opened_once() -> None:
    """Also not again after its end."""

    async def test(stage: Stage) -> None:
        member = await stage.member()
        with pytest.raises(ConsumerClosedError, match="can be opened once"):
            await member.open()
        await member.adapter.aclose()
        with pytest.raises(ConsumerClosedError, match="can be opened once"):
            await member.open()

    play(test)


@pytest.mark.parametrize("seam", ["describe", "consumer"])
def test_open_is_tried_again_for_a_while(seam: str) -> None:
    """One throttle is not its end."""

    async def test(stage: Stage) -> None:
        actor = stage.actor(fan_out="c")
        actor.faults.fail_next(seam, times=2)
        await actor.open()
        await actor.holding(SHARD)

    play(test)


@pytest.mark.parametrize("seam", ["describe", "consumer", "time"])
def test_open_that_fails_half_way_closes_the_client(seam: str) -> None:
    """Whatever was reached by then."""

    async def test(stage: Stage) -> None:
        actor = stage.actor(fan_out="c")
        service = closing(stage, actor)
        actor.faults.fail_next(seam, times=1000)  # an opening is tried for a while
        with pytest.raises(TransientAdapterError):
            await actor.open()
        assert service.closed == 1

    play(test)


def test_group_without_leases_is_refused_and_the_client_closed() -> None:
    """The message says which stores have them."""

    async def test(stage: Stage) -> None:
        actor = stage.actor()
        service = closing(stage, actor)
        with pytest.raises(ConfigurationError, match="needs a store that keeps leases"):
            await actor.adapter.open(actor.owner, None)
        assert service.closed == 1

    play(test)


def test_stream_that_does_not_exist_is_refused() -> None:
    """At the start, not after a while without records."""

    async def test(stage: Stage) -> None:
        stage.kinesis.delete_stream("s")
        with pytest.raises(ConfigurationError, match="no stream 's'"):
            await stage.actor().open()

    play(test)


@pytest.mark.parametrize("how", ["cancelled", "closed"])
def test_open_that_is_given_up_leaves_nothing_running(how: str) -> None:
    """Nobody would end what it had begun."""

    async def test(stage: Stage) -> None:
        actor = stage.actor()
        rates = {"time": FaultRates(delay=1.0, max_delay=5.0)}
        actor.faults = Faults(stage.simulation.random, rates)
        service = closing(stage, actor)
        opening = asyncio.create_task(actor.open())
        await asyncio.sleep(0)
        if how == "cancelled":
            opening.cancel()
        else:
            await actor.adapter.aclose()
        (error,) = await asyncio.gather(opening, return_exceptions=True)
        kind = asyncio.CancelledError if how == "cancelled" else ConsumerClosedError
        assert isinstance(error, kind)
        assert service.closed >= 1

    play(test)


def test_close_twice_at_once_and_cancelled_ends_once_and_wholly() -> None:
    """Once begun it goes on to its end, whoever stops waiting for it."""

    async def test(stage: Stage) -> None:
        actor = stage.actor()
        service = closing(stage, actor)
        await actor.open()
        await actor.holding(SHARD)
        gate = asyncio.Event()
        actor.owner.on_revoked = lambda _: gate.wait()
        first, second = (asyncio.create_task(actor.adapter.aclose()) for _ in range(2))
        await asyncio.sleep(1)
        first.cancel()
        await asyncio.sleep(1)
        assert (first.cancelled(), second.done(), service.closed) == (True, False, 0)
        gate.set()
        await second
        await actor.adapter.aclose()
        assert service.closed == 1
        assert len(stage.journal.of("revoked")) == 1

    play(test)


def test_close_right_after_open_is_clean() -> None:
    """Before any task has had a turn."""

    async def test(stage: Stage) -> None:
        member = await stage.member()
        await member.adapter.aclose()
        assert stage.journal.events == []

    play(test)


def test_error_that_ends_the_adapter_comes_out_of_run_and_of_every_fetch() -> None:
    """And it can still be closed."""

    async def test(stage: Stage) -> None:
        member = await stage.member(discovery_interval=5.0)
        await member.holding(SHARD)
        duties = asyncio.create_task(member.adapter.run())
        stage.kinesis.delete_stream("s")
        await asyncio.wait({duties})
        assert isinstance(duties.exception(), AdapterError)
        for _ in range(2):
            with pytest.raises(AdapterError, match="was deleted"):
                await member.fetch()

    play(test)


# -- fetching -----------------------------------------------------------------------------------


def test_busy_shard_is_not_delayed_by_idle_ones() -> None:
    """Kinesis trap 26: 24 idle shards; each record comes within a second."""

    async def test(stage: Stage) -> None:
        member = await stage.member()
        await stage.journal.until(lambda: len(member.held) == 25, "all")
        await member.read(30)
        loop = asyncio.get_running_loop()
        for number in range(50):
            stage.put(f"{number}", shard=7)
            before = loop.time()
            while not values_of(await member.fetch(10)):
                pass
            assert loop.time() - before <= 1.0
            await asyncio.sleep(0.3 * (number % 5))

    play(test, shards=25)


def test_each_shard_has_its_turn_whatever_the_others_have() -> None:
    """Small fetches from full shards: nobody starves."""

    async def test(stage: Stage) -> None:
        for number in range(30):
            for shard in range(3):
                stage.put(f"{shard}.{number}", shard=shard)
        member = await stage.member()
        await member.holding(*[shard_id(each) for each in range(3)])
        await asyncio.sleep(5)
        first = [value for _ in range(9) for value in values_of(await member.fetch(max_records=2))]
        assert {value[0] for value in first} == {"0", "1", "2"}
        assert len(first) == 18

    play(test, shards=3)


def test_fetch_waits_for_a_record_without_polling_and_no_longer_than_it_may() -> None:
    """Zero is a look."""

    async def test(stage: Stage) -> None:
        member = await stage.member()
        await member.holding(SHARD)
        loop = asyncio.get_running_loop()
        for wait in (0.0, 7.0):
            before = loop.time()
            assert await member.fetch(wait) == []
            assert loop.time() - before == pytest.approx(wait)
        loop.call_later(3, lambda: stage.put("a"))
        before = loop.time()
        assert values_of(await member.fetch(60)) == ["a"]
        assert loop.time() - before < 5

    play(test)


def test_cancelled_fetch_loses_no_record() -> None:
    """At any moment."""

    async def test(stage: Stage) -> None:
        member = await stage.member()
        await member.holding(SHARD)
        found: list[str] = []
        for number in range(60):
            stage.put(f"{number}")
            task = asyncio.create_task(member.fetch(10))
            await asyncio.sleep(0.05 * (number % 7))
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            if not task.cancelled():
                found += values_of(task.result())
        found += await member.read(10)
        assert found == [f"{number}" for number in range(60)]

    play(test)


def test_paused_shard_that_holds_the_whole_buffer_does_not_starve_the_others() -> None:
    """They take its memory at the moment of the pause; it reads again what it has lost."""

    async def test(stage: Stage) -> None:
        stage.put(BIG, "second", shard=0)
        member = await stage.member(buffer_bytes=500)
        await member.holding(shard_id(0), shard_id(1))
        await asyncio.sleep(30)  # the other shard waits for room, in earnest
        stage.put("waits", shard=1)
        await asyncio.sleep(30)
        member.adapter.pause(member.assignment(shard_id(0)))
        assert await member.read(30) == ["waits"]
        member.adapter.resume(member.assignment(shard_id(0)))
        assert await member.read(30) == [BIG, "second"]

    play(test, shards=2)


def test_lag_is_told_in_milliseconds_and_unknown_of_what_is_not_held() -> None:
    """Of the next record that was not fetched."""

    async def test(stage: Stage) -> None:
        member = await stage.member()
        await member.holding(SHARD)
        held = member.assignment()
        stage.put("a")
        await asyncio.sleep(20)
        assert 18_000 <= ((await member.adapter.lag([held]))[held] or 0) <= 20_000
        await member.read(5)
        assert (await member.adapter.lag([held]))[held] == 0
        await asyncio.sleep(100)  # a quiet shard is asked, and has nothing
        assert (await member.adapter.lag([held]))[held] == 0
        member.adapter.drop(held)
        assert (await member.adapter.lag([held]))[held] is None

    play(test)


@pytest.mark.parametrize("fan_out", [None, "c"])
def test_lag_grows_while_nothing_can_be_read(fan_out: str | None) -> None:
    """What came since the last answer is not known, and that is not nothing."""

    async def test(stage: Stage) -> None:
        member = await stage.member(fan_out=fan_out)
        await member.holding(SHARD)
        held = member.assignment()
        await member.read(10)
        assert (await member.adapter.lag([held]))[held] == 0
        seams = ("records", "iterator") if fan_out is None else ("event", "subscribe")
        for seam in seams:
            member.faults.fail_next(seam, times=1000)
        stage.put("a")
        await asyncio.sleep(12)
        assert 5_000 <= ((await member.adapter.lag([held]))[held] or 0) <= 18_000

    play(test)


def test_lag_of_a_paused_shard_counts_what_was_given_back() -> None:
    """Its unread records were forgotten for others, and wait all the same."""

    async def test(stage: Stage) -> None:
        member = await stage.member(buffer_bytes=3 * len(BIG) // 2)
        await member.holding(SHARD)
        held = member.assignment()
        stage.put("a")
        await asyncio.sleep(3)
        grant = member.adapter._grant(held)
        assert grant is not None
        member.adapter.pause(held)
        grant.forget_unread()
        await asyncio.sleep(60)
        assert 60_000 <= ((await member.adapter.lag([held]))[held] or 0) <= 63_000

    play(test)


def test_partitions_are_those_of_its_stream_closed_ones_too() -> None:
    """Of another stream it knows nothing."""

    async def test(stage: Stage) -> None:
        member = await stage.member()
        stage.kinesis.split("s", SHARD)
        found = [each.id for each in await member.adapter.partitions("s")]
        assert found == [shard_id(each) for each in range(3)]
        assert await member.adapter.partitions("other") == []

    play(test)


# -- alone --------------------------------------------------------------------------------------


async def run_alone(stage: Stage, *, events: dict[float, Any], **options: Any) -> list[str]:
    """What a consumer without a group sees in a hundred seconds."""
    seen: list[str] = []

    async def handle(message: Message) -> None:
        seen.append(text_of(message))

    async with stage.consumer(None, **options) as consumer:
        loop = asyncio.get_running_loop()
        for time, event in events.items():
            loop.call_later(time, event)
        loop.call_later(100, consumer.stop)
        await consumer.run(handle)
    return seen


@pytest.mark.parametrize("fan_out", [None, "c"])
def test_alone_all_shards_are_read_and_children_follow_their_parents(fan_out: Any) -> None:
    """Kinesis trap 21: without a store too: settled, then ended, then the children."""

    async def test(stage: Stage) -> None:
        def split() -> None:
            stage.put("parent")
            stage.kinesis.split("s", SHARD)
            stage.put("child")

        options = {"adapter": {"fan_out": fan_out}}
        stage.put("before")
        seen = await run_alone(stage, events={10: split}, **options)
        assert seen == ["before", "parent", "child"]

    play(test)


@pytest.mark.parametrize("fan_out", [None, "c"])
def test_alone_latest_is_the_moment_of_the_opening_for_children_too(fan_out: Any) -> None:
    """Kinesis trap 20: what was written between the split and its discovery is not lost."""

    async def test(stage: Stage) -> None:
        def split() -> None:
            stage.kinesis.split("s", SHARD)
            for number in range(10):
                stage.kinesis.put("s", f"{number}".encode(), f"key {number}")

        stage.put("old")
        await asyncio.sleep(5)
        options = {"adapter": {"fan_out": fan_out}, "start": "latest"}
        seen = await run_alone(stage, events={10: split}, **options)
        assert sorted(seen) == [f"{number}" for number in range(10)]

    play(test, quirks=Quirks(list_lag=15.0))


def test_start_is_read_from_where_it_points() -> None:
    """A position is that of a record, and the record comes."""

    async def test(stage: Stage) -> None:
        stage.put("a", "b")
        second = stage.kinesis.stream("s").shard(SHARD).stored()[1]
        start: Start = AtPosition((second.sequence, 0))
        assert await run_alone(stage, events={}, start=start) == ["b"]

    play(test)
