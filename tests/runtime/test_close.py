"""Shutdown, failure and misuse."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable

import pytest

from consumer_sdk import (
    AdapterError,
    Batch,
    ConfigurationError,
    Consumer,
    ConsumerClosedError,
    ConsumerSdkError,
    Message,
    Ordering,
    RetryPolicy,
)
from consumer_sdk.abc import AssignmentOwner, LeaseSource
from consumer_sdk.runtime.partitions.assignments import Assignments
from consumer_sdk.stores import MemoryStore
from consumer_sdk.testing import Faults, MemoryAdapter, MemoryBroker
from tests.runtime.bench import Bench, bench


def test_close_is_idempotent_and_waits_for_handlers() -> None:
    """A handler in flight ends, and its record is committed, before the consumer leaves."""

    async def test(b: Bench) -> None:
        b.append("x")

        async def handle(message: Message) -> None:
            await asyncio.sleep(2)
            b.seen.append(message)

        consumer = b.consumer(drain_timeout=5)
        running = asyncio.create_task(consumer.run(handle))
        await asyncio.sleep(1)
        consumer.stop()
        await running
        await consumer.aclose()
        assert b.values == ["x"]
        assert b.committed() == {"0": 1}

    bench(test)


def test_stuck_handler_is_cancelled_after_the_drain_and_redelivered() -> None:
    """T17, T26: a drain is bounded; a drain's cancellation is not an attempt."""

    async def test(b: Bench) -> None:
        b.append("x")

        async def stuck(_: Message) -> None:
            await asyncio.sleep(10_000)

        start = b.simulation.clock.monotonic()
        await b.run(b.consumer(drain_timeout=3), stuck, seconds=5)
        assert b.simulation.clock.monotonic() - start <= 8.5
        async with b.consumer() as consumer:
            message = await anext(consumer)
            assert message.attempt == 1

    bench(test)


def test_cancelled_run_drains_and_flushes_first() -> None:
    """Cancelling `run` loses nothing that was settled."""

    async def test(b: Bench) -> None:
        b.append("x", "y")
        running = asyncio.create_task(b.consumer(flush_interval=100).run(b.see))
        await asyncio.sleep(1)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        assert b.committed() == {"0": 2}

    bench(test)


def test_flush_fails_at_the_broker_and_is_put_back() -> None:
    """T20: commits that fail before or after their effect lose nothing."""

    async def test(b: Bench) -> None:
        faults = Faults()
        faults.fail_next("commit", times=3)
        faults.fail_next("commit", "after", times=2)
        b.append("x")
        adapter = MemoryAdapter(b.broker, "s", group="g", faults=faults)
        async with Consumer(adapter, clock=b.simulation.clock) as consumer:
            (await anext(consumer)).ack()
            await consumer.flush()
            assert b.committed() == {"0": 1}

    bench(test)


def test_transient_fetch_errors_are_tried_again() -> None:
    """A fetch that fails for a while loses nothing and is counted."""

    async def test(b: Bench) -> None:
        faults = Faults()
        faults.fail_next("fetch", times=4)
        b.append("x")
        adapter = MemoryAdapter(b.broker, "s", group="g", faults=faults)
        async with Consumer(adapter, clock=b.simulation.clock) as consumer:
            assert (await anext(consumer)).value == b"x"
            assert consumer.stats().fetch_errors == 4

    bench(test)


def test_fatal_fetch_error_surfaces_from_run_and_from_iteration() -> None:
    """What cannot go on is raised where the user waits, after a flush of what is settled."""

    async def test(b: Bench) -> None:
        for is_run in (True, False):
            faults = Faults(error=lambda _: AdapterError("gone"))
            adapter = MemoryAdapter(b.broker, "s", group="g", faults=faults)
            consumer = Consumer(adapter, clock=b.simulation.clock)
            faults.fail_next("fetch")
            with pytest.raises(AdapterError, match="gone"):
                if is_run:
                    await consumer.run(b.see)
                else:
                    async with consumer:
                        await anext(consumer)

    bench(test)


def test_failed_open_closes_what_was_opened() -> None:
    """An error at start leaves no task and no member behind."""

    async def test(b: Bench) -> None:
        faults = Faults(error=lambda _: AdapterError("refused"))
        faults.fail_next("open")
        adapter = MemoryAdapter(b.broker, "s", group="g", faults=faults)
        with pytest.raises(AdapterError, match="refused"):
            await Consumer(adapter, clock=b.simulation.clock).run(b.see)

    bench(test)


def test_failed_open_is_a_failure_for_probes() -> None:
    """They say what it was, for whoever does not await `run` before the end."""

    async def test(b: Bench) -> None:
        faults = Faults(error=lambda _: AdapterError("refused"))
        faults.fail_next("open")
        adapter = MemoryAdapter(b.broker, "s", group="g", faults=faults)
        consumer = Consumer(adapter, clock=b.simulation.clock)
        with pytest.raises(AdapterError, match="refused"):
            await consumer.run(b.see)
        assert consumer.state == "failed"
        assert "refused" in consumer.health().reasons[1]
        await consumer.aclose()

    bench(test)


def test_cancelled_handler_task_of_its_own_is_a_failed_delivery() -> None:
    """A CancelledError that nobody asked for is no reason to lose a record."""

    async def test(b: Bench) -> None:
        b.append("x")

        async def handle(message: Message) -> None:
            b.seen.append(message)
            if message.attempt == 1:
                raise asyncio.CancelledError

        await b.run(b.consumer(), handle)
        assert [m.attempt for m in b.seen] == [1, 2]

    bench(test)


async def test_sigterm_ends_run_after_a_drain() -> None:
    """SIGTERM does what `stop` does."""
    broker = MemoryBroker()
    broker.create_stream("s")
    broker.append("s", b"x")
    consumer = Consumer(MemoryAdapter(broker, "s", group="g"))

    async def handle(_: Message) -> None:
        os.kill(os.getpid(), signal.SIGTERM)

    await consumer.run(handle)
    assert list(broker.committed("g", "s").values()) == [1]


async def test_forked_child_gets_a_clear_error() -> None:
    """Settling or using a parent's consumer in a child is refused."""
    broker = MemoryBroker()
    broker.create_stream("s")
    broker.append("s", b"x")
    async with Consumer(MemoryAdapter(broker, "s", group="g")) as consumer:
        message = await anext(consumer)
        pid = os.fork()
        if pid == 0:
            status = 1
            try:
                message.ack()
            except ConsumerClosedError:
                status = 0
            os._exit(status)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
        assert message.ack()


def test_other_event_loop_gets_a_clear_error() -> None:
    """A consumer belongs to the loop that opened it."""
    broker = MemoryBroker()
    broker.create_stream("s")
    consumer = Consumer(MemoryAdapter(broker, "s", group="g"))

    async def open_only() -> None:
        async with consumer:
            other = asyncio.to_thread(asyncio.run, _use(consumer))
            with pytest.raises(ConsumerClosedError, match="another event loop"):
                await other

    asyncio.run(open_only())


@pytest.mark.parametrize("debug", [False, True])
def test_ack_in_another_thread_is_refused_and_closing_ends(debug: bool) -> None:  # noqa: FBT001
    """In asyncio's debug mode its own check left the flusher waiting for ever."""
    broker = MemoryBroker()
    broker.create_stream("s")
    for n in range(3):
        broker.append("s", b"%d" % n)

    async def take_all() -> None:
        async with Consumer(MemoryAdapter(broker, "s", group="g")) as consumer:
            with pytest.raises(ConsumerClosedError, match="call_soon_threadsafe"):
                await asyncio.to_thread((await anext(consumer)).ack)
            loop = asyncio.get_running_loop()
            second, third = await anext(consumer), await anext(consumer)
            await asyncio.to_thread(loop.call_soon_threadsafe, second.ack)
            third.ack()
            await consumer.flush()

    asyncio.run(asyncio.wait_for(take_all(), 300), debug=debug)
    assert list(broker.committed("g", "s").values()) == [3]


async def _use(consumer: Consumer) -> None:
    await anext(consumer)


@pytest.mark.parametrize(
    "options",
    [
        {"start": "soon"},
        {"out_of_range": "ignore"},
        {"flush_interval": -1},
        {"drain_timeout": 0},
        {"max_in_flight": 0},
        {"ack_timeout": 0},
        {"max_in_flight_bytes": -5},
        {"restart": "from_scratch"},
        {"restart": "from_start"},
        {"application_id": ""},
        {"application_id": "x" * 101},
        {"application_id": 7},
        {"max_lag": 0},
        {"lag_policy": "drop"},
    ],
)
def test_bad_option_is_refused_when_built(options: dict[str, object]) -> None:
    """A bad option names itself before anything is opened."""
    broker = MemoryBroker()
    broker.create_stream("s")
    with pytest.raises(ConfigurationError, match=next(iter(options))):
        Consumer(MemoryAdapter(broker, "s", group="g"), **options)  # type: ignore[arg-type]  # on purpose


def test_bad_run_options_and_mixed_styles_are_refused() -> None:
    """`run` refuses what cannot work, and a consumer that somebody pulls from."""

    async def test(b: Bench) -> None:
        for options in ({"concurrency": 0}, {"ordering": "keys"}, {"batch_size": 0}):
            with pytest.raises(ConfigurationError):
                await b.consumer().run(b.see, **options)
        b.append("x")
        async with b.consumer(drain_timeout=0.1) as consumer:
            await anext(consumer)
            with pytest.raises(ConfigurationError, match="pulls"):
                await consumer.run(b.see, ordering=Ordering.KEY)

    bench(test)


def test_store_without_a_group_is_refused() -> None:
    """A store keeps checkpoints by group."""
    from consumer_sdk.stores import MemoryStore

    broker = MemoryBroker()
    broker.create_stream("s")
    with pytest.raises(ConfigurationError, match="group="):
        Consumer(MemoryAdapter(broker, "s"), store=MemoryStore(), retry=RetryPolicy())


def test_handler_that_swallows_its_cancellation_does_not_hold_up_the_close() -> None:
    """T26: the close is bounded whatever the handler does."""

    async def test(b: Bench) -> None:
        b.append("x")

        async def deaf(_: Message) -> None:
            try:
                await asyncio.sleep(1000)
            except asyncio.CancelledError:
                await asyncio.sleep(1000)

        began = b.simulation.clock.monotonic()
        await b.run(b.consumer(drain_timeout=3), deaf, seconds=5)
        assert b.simulation.clock.monotonic() - began <= 5 + 3 + 3 + 1
        await asyncio.sleep(1000)  # it ends in the end

    bench(test)


def test_fetch_that_ends_by_a_cancellation_of_its_own_stops_the_consumer() -> None:
    """A client that lets a CancelledError out must not leave a consumer that waits for ever."""

    async def test(b: Bench) -> None:
        faults = Faults(error=lambda _: asyncio.CancelledError())  # type: ignore[arg-type, return-value]  # what a client lets out
        faults.fail_next("fetch")
        adapter = MemoryAdapter(b.broker, "s", group="g", faults=faults)
        consumer = Consumer(adapter, clock=b.simulation.clock)
        with pytest.raises(ConsumerSdkError, match="nobody asked for"):
            await asyncio.wait_for(consumer.run(b.see), 100)

    bench(test)


def test_flush_after_a_stop_ends_when_the_consumer_fails() -> None:
    """Nobody flushes any more: `flush` says why, and does not wait for it."""

    async def test(b: Bench) -> None:
        b.append("x")
        faults = Faults(error=lambda _: AdapterError("gone"))
        adapter = MemoryAdapter(b.broker, "s", group="g", faults=faults)
        consumer = Consumer(adapter, clock=b.simulation.clock)
        with pytest.raises(AdapterError, match="gone"):
            async with consumer:
                (await anext(consumer)).ack()
                faults.fail_next("commit", times=1000)
                consumer.stop()
                asyncio.get_running_loop().call_later(3, faults.fail_next, "fetch")
                await consumer.flush()
        assert b.simulation.clock.monotonic() < 60

    bench(test)


class _FailsToClose(MemoryAdapter):
    """Fails in the end, too."""

    async def aclose(self) -> None:
        await super().aclose()
        raise OSError("and not closed either")


def test_failed_open_is_what_is_raised_though_closing_fails_too() -> None:
    """The first error is the one that names the fix."""

    async def test(b: Bench) -> None:
        faults = Faults(error=lambda _: AdapterError("refused"))
        faults.fail_next("open")
        adapter = _FailsToClose(b.broker, "s", group="g", faults=faults)
        with pytest.raises(AdapterError, match="refused"):
            await Consumer(adapter, clock=b.simulation.clock).run(b.see)

    bench(test)


async def test_forked_child_can_settle_nothing() -> None:
    """Every way to settle a message is an error in a child, where nothing would flush it."""
    broker = MemoryBroker()
    broker.create_stream("s")
    broker.append_all("s", [b"1"])
    async with Consumer(MemoryAdapter(broker, "s", group="g")) as consumer:
        message = await anext(consumer)
        child = os.fork()
        if not child:
            ways: list[Callable[[], object]] = [
                message.ack,
                message.ack_cumulative,
                message.nack,
                message.reject,
                Batch([message]).ack,
                lambda: message.extend(1.0),
            ]
            os._exit(sum(not _is_refused(way) for way in ways))
        _, status = os.waitpid(child, 0)
        assert os.waitstatus_to_exitcode(status) == 0
        assert message.ack()


def _is_refused(way: Callable[[], object]) -> bool:
    try:
        way()
    except ConsumerClosedError:
        return True
    return False


@pytest.mark.parametrize("outcome", ["acks", "returns", "fails"])
def test_what_a_handler_does_when_it_is_cancelled_is_flushed(outcome: str) -> None:
    """T17: stop, drain, cancel, flush; a failure then is the drain's and counts no attempt."""

    async def test(b: Bench) -> None:
        b.append("x")

        async def handle(message: Message) -> None:
            try:
                await asyncio.sleep(1000)
            except asyncio.CancelledError:
                if outcome == "fails":
                    raise ConnectionError from None
                if outcome == "acks":
                    message.ack()
                    raise

        store = MemoryStore()
        await b.run(b.consumer(drain_timeout=3, store=store), handle, seconds=5)
        if outcome != "fails":
            assert b.committed() == {"0": 1}
            return
        async with b.consumer(store=store) as successor:
            assert (await anext(successor)).attempt == 1

    bench(test)


def test_second_close_waits_for_the_first() -> None:
    """T27: leaving ``async with`` while somebody else closes does not cut the drain short."""

    async def test(b: Bench) -> None:
        b.append("x")
        async with b.consumer() as consumer:
            message = await anext(consumer)
            closing = asyncio.create_task(consumer.aclose())
            await asyncio.sleep(1)
            asyncio.get_running_loop().call_later(1, message.ack)
        assert b.committed() == {"0": 1}
        await closing
        await consumer.aclose()

    bench(test)


def test_close_inside_a_handler_comes_to_an_end() -> None:
    """The drain waits for the handler that waits for it, but not for ever."""

    async def test(b: Bench) -> None:
        b.append("x")
        consumer = b.consumer(drain_timeout=3)

        async def close(_: Message) -> None:
            await consumer.aclose()

        began = b.simulation.clock.monotonic()
        await b.run(consumer, close, seconds=5)
        assert b.simulation.clock.monotonic() - began < 12

    bench(test)


async def test_second_signal_does_not_cut_the_drain_short() -> None:
    """The signals are handled until the consumer has left: the drain bounds itself."""
    broker = MemoryBroker()
    broker.create_stream("s")
    broker.append("s", b"x")
    consumer = Consumer(MemoryAdapter(broker, "s", group="g"))
    loop = asyncio.get_running_loop()

    async def handle(_: Message) -> None:
        os.kill(os.getpid(), signal.SIGTERM)
        drained = loop.create_future()
        loop.call_later(0.05, os.kill, os.getpid(), signal.SIGTERM)
        loop.call_later(0.1, drained.set_result, None)
        await drained

    await consumer.run(handle)
    assert list(broker.committed("g", "s").values()) == [1]


class _LetsACancellationOut(MemoryAdapter):
    """Its client ends the close by a CancelledError of its own."""

    async def aclose(self) -> None:
        await super().aclose()
        raise asyncio.CancelledError


def test_cancellation_that_an_adapter_lets_out_skips_no_step_of_the_close() -> None:
    """The store is closed all the same, and the error says whose cancellation it was."""

    async def test(b: Bench) -> None:
        store = _CountsCloses()
        adapter = _LetsACancellationOut(b.broker, "s", group="g")
        consumer = Consumer(adapter, store=store, clock=b.simulation.clock)
        with pytest.raises(ConsumerSdkError, match="nobody asked for"):
            async with consumer:
                pass
        assert store.closed == 1

    bench(test)


class _CountsCloses(MemoryStore):  # type: ignore[misc]  # final for users; here it only counts
    """Counts how often it was closed."""

    closed = 0

    async def aclose(self) -> None:
        self.closed += 1
        await super().aclose()


class _FailsSlowly(MemoryAdapter):
    """Can be neither opened nor closed, and takes a second each to notice."""

    async def open(self, owner: AssignmentOwner, leases: LeaseSource | None = None) -> None:
        await asyncio.sleep(1)
        raise AdapterError("refused")

    async def aclose(self) -> None:
        await asyncio.sleep(1)
        await super().aclose()
        raise OSError("and not closed either")


@pytest.mark.parametrize("first", [0.5, 5.0], ids=["cancelled", "refused"])
def test_open_that_is_cancelled_as_it_closes_leaves_nothing_open(first: float) -> None:
    """The cancellation is raised when all that was opened is closed."""

    async def test(b: Bench) -> None:
        store = _CountsCloses()
        adapter = _FailsSlowly(b.broker, "s", group="g")
        consumer = Consumer(adapter, store=store, clock=b.simulation.clock)
        running = asyncio.create_task(consumer.run(b.see))
        loop = asyncio.get_running_loop()
        loop.call_later(first, running.cancel)
        loop.call_later(1.2, running.cancel)
        with pytest.raises(asyncio.CancelledError):
            await running
        assert store.closed == 1

    bench(test)


@pytest.mark.parametrize("is_late", [False, True], ids=["before the drain", "during the drain"])
def test_redelivery_settled_as_it_waits_does_not_end_the_drain_early(*, is_late: bool) -> None:
    """What is left of a timed-out delivery counts neither as in flight nor as waiting."""

    async def test(b: Bench) -> None:
        b.append("1", "2")
        async with b.consumer(ack_timeout=5) as consumer:
            first, second = await anext(consumer), await anext(consumer)
            second.extend(1000)
            await asyncio.sleep(10)  # the first has failed, is due again, and is queued
            if not is_late:
                assert first.ack()
            closing = asyncio.create_task(consumer.aclose())
            await asyncio.sleep(1)
            assert first.ack() is is_late
            await asyncio.sleep(1)
            assert second.ack()
            await closing
        assert b.committed() == {"0": 2}

    bench(test)


def test_drain_that_fails_skips_no_step_of_the_close(monkeypatch: pytest.MonkeyPatch) -> None:
    """The group is left and the store closed, and the error is raised."""

    async def fail(*_: object, **__: object) -> None:
        raise OSError("no drain")

    async def test(b: Bench) -> None:
        store = _CountsCloses()
        consumer = b.consumer(store=store)
        with pytest.raises(OSError, match="no drain"):
            async with consumer:
                monkeypatch.setattr(Assignments, "drain", fail)
        assert store.closed == 1

    bench(test)
