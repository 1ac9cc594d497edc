"""`Consumer.run`: acks, retries, dead letters and order."""

from __future__ import annotations

import asyncio

import pytest

from consumer_sdk import (
    Batch,
    ConfigurationError,
    Consumer,
    HandlerError,
    Message,
    Ordering,
    Reject,
    Retry,
    RetryPolicy,
)
from consumer_sdk.errors import TransientStoreError
from consumer_sdk.testing import MemoryAdapter
from tests.runtime.bench import QUICK, Bench, Letters, bench


def test_handler_returns_record_is_settled_and_committed() -> None:
    """A handler's return acks; the position is committed when the run ends."""

    async def test(b: Bench) -> None:
        b.append("1", "2", "3")
        await b.run(b.consumer())
        assert b.values == ["1", "2", "3"]
        assert b.committed() == {"0": 3}

    bench(test)


def test_handler_raises_record_is_retried_then_dead_lettered() -> None:
    """T29: the limit leads to a dead letter, and the watermark moves on."""

    async def test(b: Bench) -> None:
        b.append("bad", "good")

        async def handle(message: Message) -> None:
            b.seen.append(message)
            if message.value == b"bad":
                raise ValueError("no")

        consumer = b.consumer()
        await b.run(consumer, handle)
        assert [m.attempt for m in b.seen if m.value == b"bad"] == [1, 2, 3]
        (letter,) = b.letters.kept
        assert (letter.error, letter.error_type) == ("ValueError: no", "builtins.ValueError")
        assert (letter.attempts, letter.position, letter.group) == (3, "0", "g")
        assert b.committed() == {"0": 2}
        assert consumer.stats().dead_lettered == 1

    bench(test)


def test_max_attempts_of_one_means_no_retry_and_still_a_checkpoint() -> None:
    """``max_attempts=1`` dead-letters at once, and the position moves."""

    async def test(b: Bench) -> None:
        b.append("x")

        async def handle(message: Message) -> None:
            b.seen.append(message)
            raise ValueError

        await b.run(b.consumer(retry=RetryPolicy(max_attempts=1)), handle)
        assert len(b.seen) == 1
        assert b.committed() == {"0": 1}

    bench(test)


@pytest.mark.parametrize("down", [None, OSError("down"), TransientStoreError("down")])
def test_dead_letters_down_record_stays_unsettled_until_they_work(down: Exception | None) -> None:
    """T13: a record is settled only when its dead letter is durable; also where they raise."""

    async def test(b: Bench) -> None:
        b.append("x", "y")
        b.letters = Letters(failures=3, raises=down)
        consumer = b.consumer()
        running = asyncio.create_task(b.run(consumer, _reject_x))
        await asyncio.sleep(0.15)
        assert b.committed() in ({}, {"0": 0})
        await running
        assert [letter.value for letter in b.letters.kept] == [b"x"]
        assert b.committed() == {"0": 2}

    bench(test)


class _WithoutDeadLetters(MemoryAdapter):
    """Of a broker that has no place of its own for dead letters."""

    def dead_letters(self) -> None:
        """None."""


async def _reject_x(message: Message) -> None:
    if message.value == b"x":
        raise Reject("x is not wanted")


def test_no_dead_letters_consumer_stops_at_the_limit_and_says_so() -> None:
    """Without a destination a poison record is neither dropped nor retried for ever."""

    async def test(b: Bench) -> None:
        b.append("x")
        adapter = _WithoutDeadLetters(b.broker, "s", group="g")
        consumer = Consumer(adapter, retry=QUICK, clock=b.simulation.clock)
        with pytest.raises(HandlerError, match="dead_letters="):
            await b.run(consumer, _reject_x)
        assert b.committed() in ({}, {"0": 0})

    bench(test)


def test_retry_with_delay_comes_back_exactly_then() -> None:
    """T22: a retry's delay is honoured, and its neighbours are not delivered again."""

    async def test(b: Bench) -> None:
        b.append("a=1", "b=2", "c=3")
        times: dict[int, float] = {}

        async def handle(message: Message) -> None:
            b.seen.append(message)
            times[message.attempt] = b.simulation.clock.monotonic()
            if message.value == b"2" and message.attempt == 1:
                raise Retry(delay=30)

        await b.run(b.consumer(), handle)
        assert sorted(b.values) == ["1", "2", "2", "3"]
        assert times[2] - times[1] == pytest.approx(30, abs=1e-6)

    bench(test)


def test_key_order_holds_the_lane_while_a_retry_waits() -> None:
    """T25: later records of a key wait for its retry; other keys go on."""

    async def test(b: Bench) -> None:
        b.append("a=1", "a=2", "b=3", "a=4")

        async def handle(message: Message) -> None:
            b.seen.append(message)
            if message.value == b"1" and message.attempt < 3:
                raise ValueError

        await b.run(b.consumer(), handle)
        assert [v for v in b.values if v != "3"] == ["1", "1", "1", "2", "4"]
        assert b.values.index("3") == 1

    bench(test)


def test_no_order_retry_holds_nothing_up() -> None:
    """Under NONE a retry overtakes nothing and is overtaken by everything."""

    async def test(b: Bench) -> None:
        b.append("a=1", "a=2", "a=3")

        async def handle(message: Message) -> None:
            b.seen.append(message)
            if message.value == b"1" and message.attempt == 1:
                raise ValueError

        await b.run(b.consumer(), handle, ordering=Ordering.NONE)
        assert b.values == ["1", "2", "3", "1"]

    bench(test)


def test_partition_order_runs_one_at_a_time() -> None:
    """Under PARTITION no two records of a partition are processed at once."""

    async def test(b: Bench) -> None:
        b.append("a=1", "b=2", "c=3")
        running = 0

        async def handle(message: Message) -> None:
            nonlocal running
            running += 1
            assert running == 1
            await asyncio.sleep(0.5)
            running -= 1
            b.seen.append(message)

        await b.run(b.consumer(), handle, ordering=Ordering.PARTITION)
        assert b.values == ["1", "2", "3"]

    bench(test)


def test_records_without_a_key_run_at_once_under_key_order() -> None:
    """T24: no key, and an empty one, is a lane of its own."""

    async def test(b: Bench) -> None:
        b.append("1", "2", "=3", "=4")
        started: list[Message] = []

        async def handle(message: Message) -> None:
            started.append(message)
            await asyncio.sleep(10)

        running = asyncio.create_task(b.run(b.consumer(), handle))
        await asyncio.sleep(1)
        assert len(started) == 4
        await running

    bench(test)


def test_explicit_settles_stand_whatever_the_handler_does_then() -> None:
    """nack, reject and ack in a handler are not undone by its return or exception."""

    async def test(b: Bench) -> None:
        b.append("a=nack", "b=reject", "c=ack")

        async def handle(message: Message) -> None:
            b.seen.append(message)
            if message.value == b"nack" and message.attempt == 1:
                message.nack(2.0)
                assert not message.ack()
            elif message.value == b"reject":
                message.reject("why")
                raise ValueError
            elif message.value == b"ack":
                message.ack()
                raise ValueError

        await b.run(b.consumer(), handle)
        assert sorted(b.values) == ["ack", "nack", "nack", "reject"]
        assert [letter.error for letter in b.letters.kept] == ["why"]
        assert b.committed() == {"0": 3}

    bench(test)


def test_half_the_keys_always_fail_the_others_go_on() -> None:
    """T7: records that wait for or behind a retry do not fill the intake gate."""

    async def test(b: Bench) -> None:
        for n in range(2000):
            b.append(f"k{n % 10}={n}")

        async def handle(message: Message) -> None:
            if int((message.key or b"k0")[1:]) < 5:
                raise ValueError
            b.seen.append(message)

        forever = RetryPolicy(max_attempts=None, initial=1000, maximum=1000)
        await b.run(b.consumer(retry=forever, max_in_flight=100), handle, concurrency=8)
        assert len(b.seen) == 1000

    bench(test)


def test_in_flight_limit_bounds_what_is_fetched() -> None:
    """Back-pressure: a stuck handler stops the fetch near the limit."""

    async def test(b: Bench) -> None:
        for n in range(5000):
            b.append(f"k{n}={n}")

        async def handle(_: Message) -> None:
            await asyncio.sleep(1000)

        consumer = b.consumer(max_in_flight=1000, fetch_records=100, drain_timeout=1)
        running = asyncio.create_task(b.run(consumer, handle, concurrency=10))
        await asyncio.sleep(30)
        assert 1000 <= consumer.stats().in_flight <= 1100
        await running

    bench(test)


def test_bytes_limit_bounds_what_is_fetched() -> None:
    """Back-pressure counts bytes too."""

    async def test(b: Bench) -> None:
        for _ in range(100):
            b.append("x" * 10_000)

        async def handle(_: Message) -> None:
            await asyncio.sleep(1000)

        consumer = b.consumer(max_in_flight_bytes=200_000, fetch_records=5, drain_timeout=1)
        running = asyncio.create_task(b.run(consumer, handle, concurrency=100))
        await asyncio.sleep(30)
        assert 200_000 <= consumer.stats().in_flight_bytes <= 250_000
        await running

    bench(test)


def test_batch_handler_settles_and_fails_whole_batches() -> None:
    """A batch's return acks all of it; an exception nacks what it did not settle itself."""

    async def test(b: Bench) -> None:
        b.append("a=1", "a=2", "b=3")
        batches: list[list[str]] = []

        async def handle(batch: Batch) -> None:
            batches.append([(m.value or b"").decode() for m in batch])
            if len(batches) == 1:
                batch[0].ack()
                raise ValueError

        await b.run(b.consumer(), handle, batch_size=10)  # type: ignore[arg-type]  # of batches
        assert batches[0] == ["1", "2", "3"]
        assert sorted(v for batch in batches[1:] for v in batch) == ["2", "3"]
        assert b.committed() == {"0": 3}

    bench(test)


def test_batch_waits_for_size_or_time() -> None:
    """A batch goes out when it is full, or when its first record has waited long enough."""

    async def test(b: Bench) -> None:
        sizes: list[tuple[int, float]] = []
        start = b.simulation.clock.monotonic()

        async def handle(batch: Batch) -> None:
            sizes.append((len(batch), round(b.simulation.clock.monotonic() - start, 2)))

        running = asyncio.create_task(
            b.run(b.consumer(), handle, batch_size=3, batch_wait=5.0)  # type: ignore[arg-type]
        )
        await asyncio.sleep(1)
        b.append("1", "2", "3", "4")
        await running
        assert [size for size, _ in sizes] == [3, 1]
        assert sizes[1][1] - sizes[0][1] == pytest.approx(5.0, abs=0.1)

    bench(test)


def test_batch_does_not_wait_for_records_that_are_not_fetched() -> None:
    """At the limit of records in flight nothing comes before something is settled."""

    async def test(b: Bench) -> None:
        b.append(*map(str, range(10)))
        sizes: list[int] = []

        async def handle(batch: Batch) -> None:
            sizes.append(len(batch))

        consumer = b.consumer(max_in_flight=5, fetch_records=5)
        began = asyncio.get_running_loop().time()
        asyncio.get_running_loop().call_later(30, consumer.stop)
        await consumer.run(handle, batch_size=100, batch_wait=1000.0)
        assert asyncio.get_running_loop().time() - began < 40
        assert sizes == [5, 5]
        assert b.committed() == {"0": 10}

    bench(test)


def test_cumulative_ack_under_key_order_is_a_usage_error() -> None:
    """It would settle what other workers still process."""

    async def test(b: Bench) -> None:
        b.append("x")
        errors: list[BaseException] = []

        async def handle(message: Message) -> None:
            try:
                message.ack_cumulative()
            except ConfigurationError as error:
                errors.append(error)

        await b.run(b.consumer(), handle)
        assert len(errors) == 1

    bench(test)


def test_plain_function_as_handler_is_refused() -> None:
    """A blocking handler is named as such before any record is fetched."""

    async def test(b: Bench) -> None:
        with pytest.raises(ConfigurationError, match="to_thread"):
            await b.consumer().run(lambda _: None)  # type: ignore[arg-type,return-value]  # on purpose

    bench(test)


def test_handler_awaits_durable_before_it_returns() -> None:
    """``message.durable()`` returns once the flush that carried the ack is durable."""

    async def test(b: Bench) -> None:
        b.append("x")
        at: list[dict[str, int]] = []

        async def handle(message: Message) -> None:
            message.ack()
            await message.durable()
            at.append(b.committed())

        await b.run(b.consumer(), handle)
        assert at == [{"0": 1}]

    bench(test)


def test_retry_due_before_the_batch_handler_returns_is_delivered_once_more() -> None:
    """A nacked record may come back while the handler that nacked it goes on."""

    async def test(b: Bench) -> None:
        b.append("k=bad", "k=1", "k=2", "k=3")
        calls: list[list[tuple[str, int]]] = []

        async def handle(batch: Batch) -> None:
            calls.append([((m.value or b"").decode(), m.attempt) for m in batch])
            for message in batch:
                if message.value == b"bad":
                    message.nack(1.0)
            await asyncio.sleep(5)

        await b.run(b.consumer(), handle, batch_size=4)  # type: ignore[arg-type]  # of batches
        first = [("bad", 1), ("1", 1), ("2", 1), ("3", 1)]
        assert calls == [first, [("bad", 2)], [("bad", 3)]]
        assert b.committed() == {"0": 4}

    bench(test)


def test_retry_due_before_the_handler_returns_keeps_the_order_of_its_key() -> None:
    """The same with single messages: the lane goes on with the retry, then with the rest."""

    async def test(b: Bench) -> None:
        b.append("k=bad", "k=1")
        running: list[bytes | None] = []

        async def handle(message: Message) -> None:
            b.seen.append(message)
            assert not running
            running.append(message.value)
            if message.value == b"bad" and message.attempt == 1:
                message.nack(0.1)
            await asyncio.sleep(5)
            running.clear()

        await b.run(b.consumer(), handle)
        assert b.values == ["bad", "bad", "1"]

    bench(test)


@pytest.mark.parametrize("is_printable", [True, False])
def test_error_that_cannot_be_told_is_dead_lettered_all_the_same(*, is_printable: bool) -> None:
    """T29: an error without a text, or with one that is no UTF-8, holds no partition up."""

    class OddError(Exception):
        def __str__(self) -> str:
            if is_printable:
                return "caf\udce9"
            raise TypeError

    async def test(b: Bench) -> None:
        b.append("bad", "good")

        async def handle(message: Message) -> None:
            if message.value == b"bad":
                raise OddError

        await b.run(b.consumer(), handle)
        (letter,) = b.letters.kept
        assert letter.error.encode().startswith(b"OddError: ")
        assert b.committed() == {"0": 2}

    bench(test)


def test_cumulative_ack_over_a_waiting_retry_lets_the_partition_go_on() -> None:
    """A retry that a cumulative ack has settled is not waited for, whenever that happens."""

    async def test(b: Bench) -> None:
        for is_late in (False, True):
            b.seen = []
            b.append("1", "2", "3", "4")

            async def handle(batch: Batch, *, is_late: bool = is_late) -> None:
                b.seen += batch
                if batch[0].value == b"1":
                    batch[0].nack(delay=50)
                    if is_late:
                        asyncio.get_running_loop().call_later(5, batch[-1].ack_cumulative)
                    else:
                        batch[-1].ack_cumulative()

            consumer = b.consumer()
            asyncio.get_running_loop().call_later(20, consumer.stop)
            await consumer.run(handle, batch_size=3, ordering=Ordering.PARTITION)
            assert b.values == ["1", "2", "3", "4"]
        assert b.committed() == {"0": 8}

    bench(test)


def test_busy_partition_among_idle_ones_is_not_kept_waiting() -> None:
    """A partition paused for its share goes on when it has room, though no other has records."""

    async def test(b: Bench) -> None:
        for number in range(4000):
            b.broker.append("s", b"", key=str(number).encode(), partition=0)
        consumer = b.consumer(max_in_flight=1000)

        async def handle(message: Message) -> None:
            b.seen.append(message)
            await asyncio.sleep(0.01)
            if len(b.seen) == 4000:
                consumer.stop()

        began = b.simulation.clock.monotonic()
        await consumer.run(handle, concurrency=100)
        assert b.simulation.clock.monotonic() - began < 1.0  # 0.4 s of work

    bench(test, partitions=10)


def test_retry_settled_while_it_was_queued_is_not_handed_to_the_handler() -> None:
    """A cumulative ack settles a retry that is due already and waits for the same handler."""

    async def test(b: Bench) -> None:
        b.append("1", "2", "3")

        async def handle(batch: Batch) -> None:
            b.seen += batch
            if batch[0].value == b"1":
                batch[0].nack(delay=1)
                await asyncio.sleep(5)
                batch[-1].ack_cumulative()

        consumer = b.consumer()
        await b.run(consumer, handle, batch_size=2, ordering=Ordering.PARTITION)  # type: ignore[arg-type]  # of batches
        assert b.values == ["1", "2", "3"]
        assert b.committed() == {"0": 3}

    bench(test)


def test_nack_with_a_reason_is_told_by_the_dead_letter() -> None:
    """One message's or a whole batch's; without one the letter says "nacked"."""

    async def test(b: Bench) -> None:
        b.append("0", "1", "2", "3")

        async def handle(batch: Batch) -> None:
            if batch[0].value == b"0":
                batch[0].nack()
                batch[1].nack(5.0, reason="busy")
            else:
                batch.nack(reason="down")

        consumer = b.consumer(retry=RetryPolicy(max_attempts=1))
        await b.run(consumer, handle, batch_size=2, ordering=Ordering.PARTITION)  # type: ignore[arg-type]  # of batches
        assert [letter.error for letter in b.letters.kept] == ["nacked", "busy", "down", "down"]
        assert {letter.error_type for letter in b.letters.kept} == {"rejected"}

    bench(test)


def test_handler_is_not_timed_while_it_is_at_work_on_a_retry() -> None:
    """The ack timeout is for deliveries that somebody may have forgotten."""

    async def test(b: Bench) -> None:
        b.append("slow", "wakes the timers")

        async def handle(message: Message) -> None:
            b.seen.append(message)
            if message.value == b"slow" and message.attempt == 2:
                await asyncio.sleep(30)
            elif message.attempt < 3:
                raise ValueError

        await b.run(b.consumer(ack_timeout=5), handle)
        assert [m.attempt for m in b.seen if m.value == b"slow"] == [1, 2]
        assert b.committed() == {"0": 2}

    bench(test)


def test_delay_that_was_asked_for_outlives_restarts() -> None:
    """It is longer than any back-off; no restart brings the record early, or costs an attempt."""

    async def test(b: Bench) -> None:
        b.append("later")
        tries: list[tuple[int, float]] = []
        begun = b.simulation.clock.monotonic()

        async def later(message: Message) -> None:
            tries.append((message.attempt, b.simulation.clock.monotonic() - begun))
            if message.attempt == 1:
                raise Retry(delay=3600)

        for _ in range(4):
            await b.run(b.consumer(), later, seconds=1000)
        (_, (attempt, waited)) = tries
        assert (attempt, b.committed()) == (2, {"0": 1})
        assert 3600 <= waited < 3610

    bench(test)
