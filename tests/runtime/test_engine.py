"""What `Engine` opens, hands on and raises: the parts of a consumer, each by itself a fake."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest

from consumer_sdk import (
    AdapterError,
    ConfigurationError,
    Consumer,
    Message,
    Ordering,
    Partition,
    PartitionLostError,
    Reject,
)
from consumer_sdk.abc import AssignmentOwner, DeadLetters, LeaseSource
from consumer_sdk.runtime.partitions.assignments import Assignments
from consumer_sdk.stores import MemoryStore
from consumer_sdk.testing import Faults, MemoryAdapter, SimulationLoop
from tests.runtime.bench import Bench, Letters, bench


class _Adapter(MemoryAdapter):
    """Has the dead letters that it is given, and notes how it is opened."""

    letters: DeadLetters | None = None
    leases: LeaseSource | None = None

    def dead_letters(self) -> DeadLetters | None:
        return self.letters

    async def open(self, owner: AssignmentOwner, leases: LeaseSource | None = None) -> None:
        self.leases = leases
        await super().open(owner)


def _adapter(b: Bench, letters: DeadLetters | None = None, **changes: Any) -> _Adapter:
    adapter = _Adapter(b.broker, "s", group="g")
    adapter.capabilities = replace(adapter.capabilities, **changes)
    adapter.letters = letters
    return adapter


async def _reject(_message: Message) -> None:
    raise Reject("no")


def test_adapters_own_dead_letters_are_opened_and_used_unless_others_are_given() -> None:
    """Others are opened before the adapter, and closed in the end."""
    calls: list[str] = []

    class Counted(Letters):
        async def open(self) -> None:
            calls.append("open")

        async def aclose(self) -> None:
            calls.append("close")

    async def test(b: Bench) -> None:
        b.append("1")
        own, given = Counted(), Counted()
        for letters, used in ((None, own), (given, given)):
            consumer = Consumer(_adapter(b, own), dead_letters=letters, clock=b.simulation.clock)
            b.append("2")
            await b.run(consumer, _reject, seconds=1)
            assert used.kept
            assert calls == ["open", "close"]
            calls.clear()
        assert len(own.kept) == 2
        assert len(given.kept) == 1

    bench(test)


def test_giving_up_what_pins_a_partition_needs_dead_letters() -> None:
    """Known when the consumer is made: the adapter's own will do."""

    async def test(b: Bench) -> None:
        with pytest.raises(ConfigurationError, match="needs a place to keep what is given up"):
            Consumer(_adapter(b), hole_policy="dead_letter")
        Consumer(_adapter(b, Letters()), hole_policy="dead_letter")
        Consumer(_adapter(b), hole_policy="dead_letter", dead_letters=Letters())
        Consumer(_adapter(b), hole_policy="pause")

    bench(test)


@pytest.mark.parametrize("needs, has_store", [(False, False), (False, True), (True, True)])
def test_adapter_is_given_the_leases_of_the_store_if_it_needs_them(
    *, needs: bool, has_store: bool
) -> None:
    """Another one shares its partitions out by itself."""

    async def test(b: Bench) -> None:
        store = MemoryStore() if has_store else None
        adapter = _adapter(b, needs_leases=needs, longest_hold=7.0)
        async with Consumer(adapter, store=store, clock=b.simulation.clock) as consumer:
            leases = None if store is None else type(store.leases)
            assert adapter.leases is None if not needs else type(adapter.leases) is leases
            assert consumer._engine.context.longest_hold == 7.0

    bench(test)


def test_failure_that_nobody_has_raised_is_raised_by_the_close() -> None:
    """Whoever does not pull would not hear of it; and it is raised once."""

    class Dies(_Adapter):
        async def run(self) -> None:
            await asyncio.sleep(1)
            raise AdapterError("gone")

    async def test(b: Bench) -> None:
        consumer = Consumer(Dies(b.broker, "s", group="g"), clock=b.simulation.clock)
        with pytest.raises(AdapterError, match="gone"):
            async with consumer:
                await asyncio.sleep(5)
                assert consumer.state == "failed"
        await consumer.aclose()

    bench(test)


@pytest.mark.parametrize("has_store", [False, True])
def test_what_is_settled_above_a_hole_is_kept_by_a_store_where_the_broker_cannot(
    *, has_store: bool
) -> None:
    """After a restart the hole alone is delivered; without a store all behind it is."""

    async def test(b: Bench) -> None:
        b.append("0", "1", "2")
        store = MemoryStore() if has_store else None
        again: list[Any] = []
        for seen in ([], again):
            adapter = _adapter(b, metadata_size=0)
            consumer = Consumer(
                adapter,
                store=None if store is None else store.handle(),
                clock=b.simulation.clock,
                drain_timeout=0.1,
            )
            async with consumer:
                asyncio.get_running_loop().call_later(5, consumer.stop)
                async for message in consumer:
                    seen.append(message.position)
                    if message.position > 0:
                        message.ack()
                await consumer.flush()
        assert again == ([0] if has_store else [0, 1, 2])

    bench(test)


def test_consumer_that_is_stopped_before_it_is_pulled_from_hands_out_nothing() -> None:
    """The iteration ends at once."""

    async def test(b: Bench) -> None:
        b.append("1")
        for size in (None, 10):
            async with b.consumer() as consumer:
                consumer.stop()
                pulled: Any = consumer if size is None else consumer.batches(max_messages=size)
                assert [found async for found in pulled] == []
        assert b.simulation.clock.monotonic() < 1

    bench(test)


def test_ack_makes_room_for_the_next_fetch_at_once() -> None:
    """A full window is looked at seldom, but an ack ends the wait."""

    async def test(b: Bench) -> None:
        b.append("1", "2")
        async with b.consumer(max_in_flight=1, fetch_records=1) as consumer:
            first = await anext(consumer)
            await asyncio.sleep(3.3)
            acked = b.simulation.clock.monotonic()
            first.ack()
            await anext(consumer)
            assert b.simulation.clock.monotonic() - acked < 0.01

    bench(test)


def test_failure_that_was_raised_is_not_raised_again_by_the_close() -> None:
    """Whoever pulls has heard of it; and the first one of several is told."""

    async def test(b: Bench) -> None:
        async with b.consumer() as consumer:
            asyncio.get_running_loop().call_later(1, consumer._engine.fail, AdapterError("first"))
            asyncio.get_running_loop().call_later(1, consumer._engine.fail, AdapterError("second"))
            with pytest.raises(AdapterError, match="first"):
                await anext(consumer)
        assert consumer.state == "failed"

    bench(test)


def test_error_that_comes_from_closing_is_no_failure_of_the_consumer() -> None:
    """Its tasks may notice that the adapter is closed."""

    class Leaves(_Adapter):
        async def run(self) -> None:
            await super().run()
            raise AdapterError("closed")

    async def test(b: Bench) -> None:
        b.append("1")
        consumer = Consumer(Leaves(b.broker, "s", group="g"), clock=b.simulation.clock)
        await b.run(consumer, seconds=1)
        assert consumer.state == "closed"
        assert b.committed() == {"0": 1}

    bench(test)


# -- how it is run, and its end -------------------------------------------------------------------


@pytest.mark.parametrize("ordering", Ordering)
def test_ordering_and_number_of_handlers_decide_what_is_flushed_and_fetched(
    ordering: Ordering,
) -> None:
    """One delivery at a time may be committed as one position; the window has room for all handlers."""
    seen: list[tuple[bool, int, int]] = []

    async def test(b: Bench) -> None:
        b.append("1")
        consumer = b.consumer()
        engine = consumer._engine

        async def look(_message: Message) -> None:
            allows, window = engine.context.allows_cumulative, engine._fetch_loop.max_in_flight
            seen.append((allows, window, engine.in_flight_limit))

        await b.run(consumer, look, seconds=1, ordering=ordering, concurrency=2000)

    bench(test)
    assert seen == [(ordering is Ordering.PARTITION, 20_000, 20_000)]


def test_order_that_the_subscription_does_not_keep_is_refused() -> None:
    """By `run`, before anything is opened."""

    async def test(b: Bench) -> None:
        consumer = Consumer(_adapter(b, keeps_key_order=False), clock=b.simulation.clock)
        with pytest.raises(ConfigurationError, match=r"run with ordering=Ordering\.NONE"):
            await consumer.run(b.see, ordering=Ordering.KEY)
        assert consumer.state == "new"

    bench(test)


def test_what_is_pulled_by_a_consumer_that_is_gated_waits() -> None:
    """The event loop was blocked before it was pulled from: others may hold its partitions."""

    async def test(b: Bench) -> None:
        b.append("1")
        async with b.consumer() as consumer:
            consumer._engine.watch.is_gated = True
            pulled = asyncio.ensure_future(anext(consumer))
            consumer._engine.start(consumer._engine.context.queue)
            await asyncio.sleep(0)
            queue = consumer._engine.context.queue
            assert getattr(queue, "_is_gated", None) or getattr(queue, "is_gated", None)
            consumer._engine.watch.is_gated = False
            queue.set_gated(is_gated=False)
            (await pulled).ack()

    bench(test)


@pytest.mark.parametrize("is_unsettled", [False, True])
def test_drain_has_its_time_and_the_last_flush_a_fifth_of_it_more(
    monkeypatch: pytest.MonkeyPatch, *, is_unsettled: bool
) -> None:
    """Or what the drain has left, if that is more; no fetch goes on meanwhile. The adapter revokes later."""
    given: list[float] = []

    async def test(b: Bench) -> None:
        b.append("1")
        consumer = b.consumer(drain_timeout=10.0)
        engine = consumer._engine

        def noting(real: Any) -> Any:
            async def noted(self: Assignments, held: Any, *, deadline: float) -> None:
                assert engine._fetching is not None
                assert engine._fetching.done()
                given.append(deadline - engine.monotonic())
                await real(self, held, deadline=deadline)

            return noted

        async with consumer:
            message = await anext(consumer)
            if not is_unsettled:
                message.ack()
            for name in ("drain", "revoked"):
                monkeypatch.setattr(Assignments, name, noting(getattr(Assignments, name)))

    bench(test)
    assert given[:2] == pytest.approx([10.0, 2.0] if is_unsettled else [10.0, 10.0], abs=0.1)


def test_last_flush_has_a_fifth_of_the_drain_after_a_handler_that_ends_late(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It begins when the cancelled handler has settled its record."""
    given: list[float] = []
    real = Assignments.revoked

    async def handle(_message: Message) -> None:
        try:
            await asyncio.sleep(1000)
        finally:
            await asyncio.sleep(1.5)

    async def test(b: Bench) -> None:
        b.append("1")
        consumer = b.consumer(drain_timeout=10.0)

        async def noted(self: Assignments, held: Any, *, deadline: float) -> None:
            given.append(deadline - consumer._engine.monotonic())
            await real(self, held, deadline=deadline)

        monkeypatch.setattr(Assignments, "revoked", noted)
        await b.run(consumer, handle, seconds=1)

    bench(test)
    assert given[0] == pytest.approx(2.0, abs=0.1)


def test_flush_does_not_wait_for_the_interval() -> None:
    """Whoever asks wants it now."""

    async def test(b: Bench) -> None:
        b.append("1", "2")
        async with b.consumer(flush_interval=3600) as consumer:
            for count in (1, 2):
                (await anext(consumer)).ack()
                began = b.simulation.clock.monotonic()
                await consumer.flush()
                assert b.simulation.clock.monotonic() - began < 1
                assert b.committed() == {"0": count}
                await asyncio.sleep(5)

    bench(test)


@asynccontextmanager
async def _flushing_in_vain(b: Bench) -> AsyncIterator[tuple[Consumer, asyncio.Future[None]]]:
    """A consumer that waits for a flush while the broker takes no commits."""
    b.append("1")
    faults = Faults(error=lambda _: AdapterError("away"))
    adapter = MemoryAdapter(b.broker, "s", group="g", faults=faults)
    async with Consumer(adapter, clock=b.simulation.clock) as consumer:
        (await anext(consumer)).ack()
        faults.fail_next("commit", times=5)
        flushing = asyncio.ensure_future(consumer.flush())
        await asyncio.sleep(0.001)
        yield consumer, flushing


def test_flush_of_a_partition_that_is_lost_is_an_error() -> None:
    """What was settled is delivered again."""

    async def test(b: Bench) -> None:
        async with _flushing_in_vain(b) as (consumer, flushing):
            consumer._engine._assignments.lost(list(consumer._engine.holdings))
            with pytest.raises(PartitionLostError):
                await flushing

    bench(test)


def test_flush_that_is_cancelled_leaves_nobody_waiting() -> None:
    """What it waited for is forgotten with the next flush."""

    async def test(b: Bench) -> None:
        async with _flushing_in_vain(b) as (consumer, flushing):
            (holding,) = consumer._engine.holdings.values()
            waiting = [future for _, _, future in holding._waiters]
            assert len(waiting) == 1
            flushing.cancel()
            await asyncio.wait({flushing})
            assert waiting[0].cancelled()

    bench(test)


def test_partition_that_comes_after_all_were_resumed_is_fetched() -> None:
    """The pause is over for it too."""

    async def test(b: Bench) -> None:
        consumer = b.consumer()
        consumer.pause(reason="night")
        async with consumer:
            await asyncio.sleep(1)
            assert consumer.resume()
            assert not consumer.resume()
            assert consumer._engine.context.pauses.reason(Partition("s", "7")) is None

    bench(test)


# -- looking --------------------------------------------------------------------------------------


def test_stats_and_lag_tell_of_each_partition_that_is_held() -> None:
    """What has a name is told by it; what is settled and what is in flight make up what was fetched."""

    async def test(b: Bench) -> None:
        b.append("k=1", "k=2", "k=3")
        async with b.consumer() as consumer:
            await asyncio.sleep(1)
            found = await consumer.lag()
            assert sorted(lag or 0 for lag in found.values()) == [0, 3]
            (await anext(consumer)).ack()
            full, empty = sorted(consumer._engine.holdings.values(), key=lambda h: -h.fetched)
            empty.is_paused = full.is_over_budget = full.is_over_lag = True
            stats = consumer.stats()
            assert set(stats.partitions) == set(found)
            assert stats.paused == (empty.assignment.partition,)
            assert stats.over_hole_budget == (full.assignment.partition,)
            assert stats.over_max_lag == (full.assignment.partition,)
            assert (stats.fetched, stats.settled, stats.in_flight) == (3, 1, 2)
            assert stats.in_flight_bytes == full.tracker.unsettled_bytes > 0

    bench(test, partitions=2)


def test_pause_and_resume_are_events_of_their_partitions(caplog: pytest.LogCaptureFixture) -> None:
    """And lines of the log."""

    async def test(b: Bench) -> None:
        async with b.consumer() as consumer:
            await asyncio.sleep(1)
            one, other = (a.partition for a in consumer._engine.holdings)
            consumer.pause(one, reason="tired")
            assert consumer.resume(one)
            await asyncio.sleep(2)  # what happens within a second is one event
            consumer.pause(reason="asleep")
            said = [
                (event.kind, event.text, set(event.partitions))
                for event in consumer._engine.events.all()
                if event.kind in ("paused", "resumed")
            ]
            assert said == [
                ("paused", f"{one}: tired", {one}),
                ("resumed", f"{one}: by hand", {one}),
                ("paused", "all partitions: asleep", {one, other}),
            ]

    with caplog.at_level("INFO"):
        bench(test, partitions=2)
    assert "paused all partitions: asleep" in caplog.text
    assert "paused s/0: tired" in caplog.text


def test_consumer_is_looked_at_before_while_and_after_its_loop_runs() -> None:
    """Without a loop there is no time that it could be late by."""
    kept: list[Consumer] = []

    async def test(b: Bench) -> None:
        b.append("1", "2")
        consumer = b.consumer(max_in_flight=1, fetch_records=1)
        kept.append(consumer)
        engine = consumer._engine
        assert (engine.time(), engine.health_inputs([]).turned) == (0.0, 0.0)
        async with consumer:
            await asyncio.sleep(3)
            assert engine.time() == b.simulation.clock.monotonic() > 0
            assert (consumer.snapshot().is_full, consumer.snapshot().loop_lag) == (False, 0.0)
            await anext(consumer)
            await asyncio.sleep(1)
            assert consumer.snapshot().is_full
            loop = asyncio.get_running_loop()
            assert isinstance(loop, SimulationLoop)
            loop.jump(5.0)
            assert engine.health_inputs([]).turned >= 5.0
            assert not isinstance(engine.loop_lag, bool)

    bench(test)
    (consumer,) = kept
    assert consumer._engine.time() == 0.0
    assert consumer.snapshot().state == consumer.state == "closed"
