"""Pulling: ``async for``, ``batches()``, explicit acks, cancellation."""

from __future__ import annotations

import asyncio
import math
from contextlib import suppress

import pytest

from consumer_sdk import Batch, ConfigurationError, Consumer, ConsumerClosedError, Message
from consumer_sdk.stores import MemoryStore
from consumer_sdk.testing import MemoryAdapter
from tests.runtime.bench import Bench, bench


def test_ack_is_durable_after_flush() -> None:
    """``flush()`` returns when everything settled is durable."""

    async def test(b: Bench) -> None:
        b.append("1", "2", "3")
        async with b.consumer(flush_interval=100) as consumer:
            async for message in consumer:
                message.ack()
                if message.value == b"2":
                    break
            await consumer.flush()
            assert b.committed() == {"0": 2}

    bench(test)


def test_ack_of_one_record_commits_no_other() -> None:
    """T21: an individual ack settles one record, not all that were fetched."""

    async def test(b: Bench) -> None:
        b.append("1", "2", "3")
        async with b.consumer() as consumer:
            messages = [await anext(consumer) for _ in range(3)]
            messages[2].ack()
            await consumer.flush()
            assert b.committed() == {"0": 0}
            (explanation,) = consumer.explain().values()
            assert explanation.pinned_by == 0
        async with b.consumer() as consumer:
            again = [await anext(consumer) for _ in range(2)]
            assert [m.value for m in again] == [b"1", b"2"]

    bench(test)


def test_cumulative_ack_settles_all_before() -> None:
    """``ack_cumulative`` settles the record and all handed out before it."""

    async def test(b: Bench) -> None:
        b.append("1", "2", "3")
        async with b.consumer() as consumer:
            messages = [await anext(consumer) for _ in range(3)]
            messages[1].ack_cumulative()
            await consumer.flush()
        assert b.committed() == {"0": 2}

    bench(test)


def test_nacked_record_comes_back_with_its_attempt() -> None:
    """A nack is delivered again after its delay, ahead of new records."""

    async def test(b: Bench) -> None:
        b.append("1")
        async with b.consumer() as consumer:
            message = await anext(consumer)
            message.nack(2.0)
            again = await anext(consumer)
            assert (again.value, again.attempt) == (b"1", 2)
            assert again.ack()
            assert not message.ack()

    bench(test)


def test_ack_timeout_is_a_failed_delivery() -> None:
    """A record that is not settled in time comes back; `extend` moves the deadline."""

    async def test(b: Bench) -> None:
        b.append("1", "2")
        clock = b.simulation.clock
        async with b.consumer(ack_timeout=10) as consumer:
            start = clock.monotonic()
            first, second = await anext(consumer), await anext(consumer)
            second.extend(30)
            again = await anext(consumer)
            assert (again.value, again.attempt) == (b"1", 2)
            assert clock.monotonic() - start == pytest.approx(11, abs=0.01)
            assert first.ack()  # late, and good news all the same
            third = await anext(consumer)
            assert (third.value, third.attempt) == (b"2", 2)

    bench(test)


def test_cancelled_pulls_lose_nothing_and_keep_order() -> None:
    """T15: a hundred cancelled waits, every record once and in order."""

    async def test(b: Bench) -> None:
        seen: list[bytes | None] = []

        async def feed() -> None:
            for n in range(200):
                b.append(str(n))
                await asyncio.sleep(0.01)

        feeding = asyncio.create_task(feed())
        async with b.consumer() as consumer:
            while len(seen) < 200:
                try:
                    async with asyncio.timeout(b.simulation.random.random() * 0.02):
                        message = await anext(consumer)
                        seen.append(message.value)
                        message.ack()
                except TimeoutError:
                    pass
        await feeding
        assert seen == [str(n).encode() for n in range(200)]

    bench(test)


def test_batches_close_by_size_and_by_time() -> None:
    """A batch is what is there when it is full or its first message has waited long enough."""

    async def test(b: Bench) -> None:
        b.append("1", "2", "3", "4", "5")
        sizes = []
        async with b.consumer() as consumer:
            async for batch in consumer.batches(max_messages=3, max_wait=1.0):
                sizes.append(len(batch))
                assert batch.ack() == len(batch)
                if sum(sizes) == 5:
                    break
        assert sizes == [3, 2]
        assert b.committed() == {"0": 5}

    bench(test)


def test_stop_ends_the_iteration() -> None:
    """`stop` ends ``async for`` without an error."""

    async def test(b: Bench) -> None:
        b.append("1")
        seen: list[Message] = []
        async with b.consumer() as consumer:
            asyncio.get_running_loop().call_later(5, consumer.stop)
            async for message in consumer:
                seen.append(message)
                message.ack()
        assert len(seen) == 1

    bench(test)


def test_settling_after_close_changes_nothing() -> None:
    """A late ack of a lost assignment is counted and ignored."""

    async def test(b: Bench) -> None:
        b.append("1")
        consumer = b.consumer(drain_timeout=1)
        async with consumer:
            message = await anext(consumer)
        batch = Batch([message, message])
        late = [message.ack(), message.nack(), message.reject(), message.ack_cumulative()]
        assert late == [False] * 4
        assert batch.ack() == 0
        assert consumer.stats().ignored == 6
        assert b.committed() in ({}, {"0": 0})

    bench(test)


def test_settling_twice_is_counted_while_held_and_after() -> None:
    """Each of the ways to settle, whoever was first."""

    async def test(b: Bench) -> None:
        b.append("1")
        consumer = b.consumer()
        async with consumer:
            message = await anext(consumer)
            assert message.ack()
            late = [message.ack(), message.nack(), message.reject(), message.ack_cumulative()]
            assert late == [False] * 4
            assert consumer.stats().ignored == 4
        assert consumer.stats().ignored == 4

    bench(test)


@pytest.mark.parametrize("seconds", [0, -1.0, math.inf, math.nan])
def test_extending_by_no_time_is_an_error(seconds: float) -> None:
    """It would turn the ack timeout off for good."""

    async def test(b: Bench) -> None:
        b.append("1")
        async with b.consumer(ack_timeout=10) as consumer:
            message = await anext(consumer)
            with pytest.raises(ConfigurationError, match="finite seconds above 0"):
                message.extend(seconds)

    bench(test)


def test_closed_or_unopened_consumer_says_so() -> None:
    """Use before opening, and a second opening, are clear errors; a look shows nothing yet."""

    async def test(b: Bench) -> None:
        consumer = b.consumer()
        with pytest.raises(ConsumerClosedError, match="async with"):
            await anext(consumer)
        stats = consumer.stats()
        assert (stats.partitions, stats.fetched, stats.fetch_errors) == ((), 0, 0)
        assert consumer.explain() == {}
        async with consumer:
            pass
        with pytest.raises(ConsumerClosedError, match="opened once"):
            await consumer.__aenter__()

    bench(test)


def test_flush_returns_although_a_hole_keeps_the_broker_from_remembering_all() -> None:
    """Where the broker keeps a position alone, `flush` does not wait for a hole to close."""

    async def test(b: Bench) -> None:
        b.append("1", "2")
        adapter = MemoryAdapter(b.broker, "s", group="g", metadata_size=0)
        async with Consumer(adapter, clock=b.simulation.clock, drain_timeout=1) as consumer:
            first, second = await anext(consumer), await anext(consumer)
            second.ack()
            await consumer.flush()
            waiting = asyncio.create_task(second.durable())
            await asyncio.sleep(1)
            assert not waiting.done()
            first.ack()
            await waiting
            assert b.committed() == {"0": 2}

    bench(test)


def test_stop_ends_the_iteration_in_the_middle_of_a_fetch() -> None:
    """What is queued when `stop` is called is not handed out, and is redelivered."""

    async def test(b: Bench) -> None:
        b.append(*"123")
        async with b.consumer() as consumer:
            async for message in consumer:
                b.seen.append(message)
                message.ack()
                consumer.stop()
        assert b.values == ["1"]
        assert b.committed() == {"0": 1}

    bench(test)


def test_restored_retry_does_not_overtake_records_that_were_never_handed_out() -> None:
    """A cumulative ack of it would settle them unseen."""

    async def test(b: Bench) -> None:
        b.append(*"012345")
        store = MemoryStore()
        async with b.consumer(store=store, drain_timeout=0.1) as consumer:
            messages = [await anext(consumer) for _ in range(6)]
            messages[4].nack(2.0)
            await consumer.flush()
        async with b.consumer(store=store, drain_timeout=0.1) as consumer:
            assert (await anext(consumer)).value == b"0"
            await asyncio.sleep(3)
            again = [await anext(consumer) for _ in range(5)]
            assert [m.value for m in again] == [b"1", b"2", b"3", b"4", b"5"]
            assert again[3].attempt == 2
            assert again[3].ack_cumulative()
            await consumer.flush()
            assert b.committed() == {"0": 5}

    bench(test)


def test_retries_that_are_due_together_come_back_in_order() -> None:
    """What was first in the log is tried again first."""

    async def test(b: Bench) -> None:
        b.append(*"01234")
        async with b.consumer() as consumer:
            for _ in range(5):
                (await anext(consumer)).nack(1.0)
            await asyncio.sleep(2)
            again = [await anext(consumer) for _ in range(5)]
            assert [m.value for m in again] == [b"0", b"1", b"2", b"3", b"4"]

    bench(test)


def test_checkpoint_that_was_cut_is_said_once_and_counted(caplog: pytest.LogCaptureFixture) -> None:
    """Top ranges that do not fit come again after a restart; the position is never at risk."""

    async def test(b: Bench) -> None:
        b.append(*map(str, range(100)))
        adapter = MemoryAdapter(b.broker, "s", group="g", metadata_size=300)
        consumer = Consumer(adapter, clock=b.simulation.clock)
        async with consumer:
            messages = [await anext(consumer) for _ in range(100)]
            for some in (messages[1:50:2], messages[51::2]):
                for message in some:
                    message.ack()
                await consumer.flush()
            assert (consumer.stats().truncated, b.committed()) == (2, {"0": 0})
            messages[-2].ack_cumulative()
            await consumer.flush()
            assert (consumer.stats().truncated, b.committed()) == (2, {"0": 100})

    bench(test)
    (warning,) = [r.getMessage() for r in caplog.records if "may hold" in r.getMessage()]
    assert warning.startswith("s/0 has more settled ranges than its checkpoint may hold")


@pytest.mark.parametrize("has_store", [False, True])
def test_attempts_that_do_not_fit_are_said_once_and_counted(
    caplog: pytest.LogCaptureFixture, *, has_store: bool
) -> None:
    """Those that fit survive a restart; the receipts of what is settled do not wait for them."""

    async def test(b: Bench) -> None:
        b.append(*map(str, range(100)))
        stores = MemoryStore()

        def consumer() -> Consumer:
            adapter = MemoryAdapter(b.broker, "s", group="g", metadata_size=1_000)
            store = stores.handle() if has_store else None
            if store is not None:
                store.max_size = 1_000
            return Consumer(adapter, store=store, clock=b.simulation.clock)

        async with consumer() as first:
            messages = [await anext(first) for _ in range(100)]
            for message in messages:
                message.nack(3600.0)
            await first.flush()
            await first.flush()
            assert first.stats().truncated == 1
        async with consumer() as second:
            attempts = [(await anext(second)).attempt for _ in range(60)]
            assert set(attempts) == {1}
            assert 30 < second.stats().retrying < 40

    bench(test)
    (warning,) = [r.getMessage() for r in caplog.records if "may hold" in r.getMessage()]
    assert warning.startswith("s/0 has more failing records than its checkpoint may hold")


def test_attempts_that_do_not_fit_are_said_again_when_they_are_twice_as_many(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The number is the one of that moment, not of the first flush that could not hold them all."""
    kept = 0

    async def test(b: Bench) -> None:
        nonlocal kept
        b.append(*map(str, range(400)))
        store = MemoryStore()
        store.max_size = 1_000
        async with b.consumer(store=store, max_in_flight=1000) as first:
            messages = [await anext(first) for _ in range(400)]
            for upto in (80, 90, 399, 400):
                while len(messages) > 400 - upto:
                    messages.pop(0).nack(3600.0)
                await first.flush()
            assert first.stats().truncated == 4
        async with b.consumer(store=store, max_in_flight=1000) as second:
            messages = [await anext(second) for _ in range(350)]
            kept = second.stats().retrying

    bench(test)
    said = [r.args for r in caplog.records if "may hold" in r.getMessage()]
    numbers = [int(str(arguments[1])) for arguments in said if isinstance(arguments, tuple)]
    assert len(numbers) == 2
    assert abs(numbers[0] - (80 - kept)) < 5
    assert abs(numbers[1] - (399 - kept)) < 5


def test_pulls_that_have_no_time_at_all_are_handed_what_is_there() -> None:
    """Each is cut off in the turn that it lets the loop take; the next one takes none."""

    async def test(b: Bench) -> None:
        b.append(*map(str, range(10)))
        seen = []
        async with b.consumer() as consumer:
            aiter(consumer)
            await asyncio.sleep(5)
            for _ in range(40):
                with suppress(TimeoutError):
                    async with asyncio.timeout(0):
                        message = await anext(consumer)
                        message.ack()
                        seen.append(message.value)
                await asyncio.sleep(0.1)
        assert seen == [b"%d" % n for n in range(10)]

    bench(test)
