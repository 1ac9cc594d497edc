"""`Workers`: which handlers a lost partition ends, who takes what comes next, and what a return settles."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from consumer_sdk import Batch, Consumer, HandlerError, Message, Ordering
from consumer_sdk.records import Run
from consumer_sdk.runtime.dispatch.workers import Workers, current_message
from consumer_sdk.runtime.partitions.assignments import Assignments
from consumer_sdk.runtime.partitions.partition_state import ConsumerContext
from consumer_sdk.testing import SimulationLoop
from tests.runtime.bench import Bench, bench
from tests.runtime.partitions.held import Clock, Held, in_loop

TURN = 0.05


def _lose(consumer: Consumer, partition: str) -> None:
    owner: Assignments = consumer._engine._assignments
    owner.lost([held for held in owner.holdings if held.partition.id == partition])


def _append(b: Bench, partition: int, values: Sequence[str]) -> None:
    for value in values:
        b.broker.append("s", value.encode(), partition=partition)


def _work(seconds: float) -> None:
    """Uses the processor: time goes on, and the event loop stands still."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, SimulationLoop)
    loop.jump(seconds)


class _Hanging:
    """A handler that waits for a thousand seconds, and says what became of it."""

    def __init__(self) -> None:
        self.events: list[str] = []
        self.now = self.most = 0

    async def __call__(self, given: Any) -> None:
        messages = given if isinstance(given, Batch) else [given]
        name = " ".join(sorted((message.value or b"").decode() for message in messages))
        self.now += 1
        self.most = max(self.most, self.now)
        self.events.append(f"{name} begins")
        try:
            await asyncio.sleep(1000)
        except asyncio.CancelledError:
            self.events.append(f"{name} is cancelled")
            raise
        finally:
            self.now -= 1

    def take(self) -> list[str]:
        """What has happened since the last look."""
        events, self.events = self.events, []
        return sorted(events)


# -- lost partitions --------------------------------------------------------------------------


def test_handlers_of_a_lost_partition_are_cancelled_and_others_go_on() -> None:
    """Their places are free for the records of the partition that is left."""

    async def test(b: Bench) -> None:
        _append(b, 0, ["a1"])
        _append(b, 1, ["b1"])
        consumer, handler = b.consumer(), _Hanging()
        running = asyncio.create_task(
            consumer.run(handler, concurrency=2, ordering=Ordering.NONE, handle_signals=False)
        )
        await asyncio.sleep(5)
        assert handler.take() == ["a1 begins", "b1 begins"]
        _append(b, 1, ["b2", "b3"])
        await asyncio.sleep(5)
        assert handler.take() == []
        _lose(consumer, "0")
        await asyncio.sleep(5)
        assert handler.take() == ["a1 is cancelled", "b2 begins"]
        assert handler.most == 2
        running.cancel()
        await asyncio.wait({running})

    bench(test, partitions=2)


def test_batch_is_cancelled_when_the_last_of_its_partitions_is_lost() -> None:
    """As long as one is held, what the handler does has an effect."""

    async def test(b: Bench) -> None:
        _append(b, 0, ["a1"])
        _append(b, 1, ["b1"])
        consumer, handler = b.consumer(), _Hanging()
        running = asyncio.create_task(consumer.run(handler, batch_size=2, handle_signals=False))
        await asyncio.sleep(5)
        assert handler.take() == ["a1 b1 begins"]
        _lose(consumer, "0")
        await asyncio.sleep(5)
        assert handler.take() == []
        _lose(consumer, "1")
        await asyncio.sleep(5)
        assert handler.take() == ["a1 b1 is cancelled"]
        running.cancel()
        await asyncio.wait({running})

    bench(test, partitions=2)


def test_worker_that_has_not_begun_when_a_partition_is_lost_begins_all_the_same() -> None:
    """It has been made, and no more. Were it cancelled, no further worker would ever be made."""

    async def test(b: Bench) -> None:
        _append(b, 0, ["a1"])
        consumer, handler = b.consumer(), _Hanging()

        async def handle(message: Message) -> None:
            if message.value == b"b1":  # the next worker was made just now
                _lose(consumer, "0")
            await handler(message)

        running = asyncio.create_task(
            consumer.run(handle, concurrency=3, ordering=Ordering.NONE, handle_signals=False)
        )
        await asyncio.sleep(5)
        _append(b, 1, ["b1", "b2", "b3"])
        await asyncio.sleep(5)
        assert handler.take() == [
            "a1 begins",
            "a1 is cancelled",
            "b1 begins",
            "b2 begins",
            "b3 begins",
        ]
        running.cancel()
        await asyncio.wait({running})

    bench(test, partitions=2)


@pytest.mark.parametrize("batch_size", [None, 1])
def test_worker_whose_handler_withstood_its_cancellation_goes_on_as_any_other(
    batch_size: int | None,
) -> None:
    """What is cancelled inside of its next handler is a failed delivery, and no end of the worker."""

    async def test(b: Bench) -> None:
        _append(b, 0, ["a"])
        consumer = b.consumer()

        async def handle(given: Any) -> None:
            message: Message = given[0] if isinstance(given, Batch) else given
            b.seen.append(message)
            if message.value == b"a":
                try:
                    await asyncio.sleep(1000)
                except asyncio.CancelledError:
                    return
            raise asyncio.CancelledError

        running = asyncio.create_task(
            b.run(consumer, handle, seconds=60, concurrency=1, batch_size=batch_size)
        )
        await asyncio.sleep(5)
        _append(b, 1, ["b"])
        await asyncio.sleep(5)
        _lose(consumer, "0")
        await running
        assert b.values == ["a", "b", "b", "b"]
        assert [letter.value for letter in b.letters.kept] == [b"b"]
        assert b.committed()["1"] == 1

    bench(test, partitions=2)


# -- places -----------------------------------------------------------------------------------


@pytest.mark.parametrize("batch_size", [None, 1])
@pytest.mark.parametrize("concurrency", [1, 2, 5])
def test_as_many_handlers_run_as_there_are_places_and_no_more(
    concurrency: int, batch_size: int | None
) -> None:
    """However many records wait."""

    async def test(b: Bench) -> None:
        b.append(*map(str, range(20)))
        consumer, handler = b.consumer(), _Hanging()
        running = asyncio.create_task(
            consumer.run(
                handler, concurrency=concurrency, batch_size=batch_size, handle_signals=False
            )
        )
        await asyncio.sleep(5)
        assert handler.now == handler.most == concurrency
        running.cancel()
        await asyncio.wait({running})

    bench(test)


def test_record_that_comes_as_the_last_worker_ends_is_handled() -> None:
    """Its place is taken when the record comes, and free when nobody looks any more."""

    async def test() -> None:
        handled: list[int] = []
        more = [1]

        async def handle(message: Message) -> None:
            handled.append(message.position)

        def has_left() -> None:
            # The worker has found nothing, and returns in this turn; the loop calls this before it
            # takes the worker from those that are there.
            for position in more:
                asyncio.get_running_loop().call_soon(put, position)
            more.clear()

        def put(position: int) -> None:
            run = Run(held.it.assignment, [Message.make(held.it.assignment, position, b"x")])
            held.it.track(run)
            workers.lanes.put(held.it, list(run.messages))

        def crashed(error: BaseException) -> None:
            raise error

        workers = Workers(handle, 1, Ordering.NONE, has_left=has_left, crashed=crashed)
        held = Held(context=ConsumerContext(clock=Clock(), queue=workers.lanes))
        put(0)
        for _ in range(20):
            await asyncio.sleep(0)
        assert handled == [0, 1]
        await workers.cancel(1)

    in_loop(test)


def test_handler_that_cannot_work_is_called_once() -> None:
    """The worker that was made beside the first one calls it no more."""

    async def test(b: Bench) -> None:
        b.append(*"01234")

        def handle(message: Message) -> Any:
            b.seen.append(message)
            return 3

        with pytest.raises(HandlerError, match="returned 3"):
            await b.run(b.consumer(), handle, concurrency=5)
        assert b.values == ["0"]
        assert b.committed() in ({}, {"0": 0})

    bench(test)


def test_batch_of_several_partitions_has_no_more_records_than_its_size() -> None:
    """The last one gives as many as there is room for."""

    async def test(b: Bench) -> None:
        _append(b, 0, ["a1", "a2", "a3"])
        _append(b, 1, ["b1", "b2", "b3"])
        sizes: list[int] = []

        async def handle(batch: Any) -> None:
            sizes.append(len(batch))

        await b.run(b.consumer(), handle, batch_size=4, ordering=Ordering.PARTITION)
        assert sizes == [4, 2]
        assert b.committed() == {"0": 3, "1": 3}

    bench(test, partitions=2)


def test_each_batch_waits_for_its_rest_anew() -> None:
    """One that was overdue leaves the next one its time."""

    async def test(b: Bench) -> None:
        b.append("1")
        batches: list[list[int]] = []

        async def handle(batch: Any) -> None:
            batches.append([message.position for message in batch])

        running = asyncio.create_task(
            b.run(b.consumer(), handle, seconds=60, batch_size=5, batch_wait=10.0)
        )
        for wait in (20, 3):
            await asyncio.sleep(wait)
            b.append("more")
        await running
        assert batches == [[0], [1, 2]]

    bench(test)


# -- what is told of handlers -----------------------------------------------------------------


def test_quick_handlers_are_counted_each_and_their_time_is_added_up() -> None:
    """In turns of the loop, beside slow ones, and at the end."""

    async def test(b: Bench) -> None:
        async def handle(message: Message) -> None:
            _work(0.5 if message.value == b"slow" else 0.001)

        b.append(*("slow" if n % 70 == 69 else "quick" for n in range(500)))
        consumer = b.consumer()
        await b.run(consumer, handle)
        seen = consumer.snapshot().handler_times["s", None]
        assert (seen.counts[0], seen.counts[7], seen.total) == (493, 7, 500)
        assert seen.sum == pytest.approx(493 * 0.001 + 7 * 0.5)

    bench(test)


def test_batches_are_timed_each_as_one_by_what_became_of_them() -> None:
    """One that failed is counted under its error."""

    async def test(b: Bench) -> None:
        async def handle(batch: Any) -> None:
            await asyncio.sleep(0.2)
            if batch[0].attempt == 1:
                raise KeyError

        b.append("1", "2")
        consumer = b.consumer()
        await asyncio.sleep(7)  # so that a moment is no duration
        await b.run(consumer, handle, batch_size=2, ordering=Ordering.PARTITION)
        seen = consumer.snapshot().handler_times
        assert set(seen) == {("s", None), ("s", "KeyError")}
        assert all(times.sum == pytest.approx(0.2 * times.total) for times in seen.values())
        assert seen["s", "KeyError"].total == 1

    bench(test)


def test_current_message_is_none_while_the_worker_waits_for_its_turn() -> None:
    """The handler has returned: a task that it has started has no message any more."""
    seen: list[Message | None] = []

    async def test(b: Bench) -> None:
        tasks: list[asyncio.Task[None]] = []

        async def look() -> None:
            seen.append(current_message())

        async def handle(_message: Message) -> None:
            tasks.append(asyncio.create_task(look()))
            _work(2 * TURN)

        b.append("key=1", "key=2", "3")
        await b.run(b.consumer(), handle)
        await asyncio.gather(*tasks)

    bench(test)
    assert seen == [None] * 3


# -- what a return settles --------------------------------------------------------------------


def test_return_of_a_handler_that_has_settled_its_record_is_no_late_ack() -> None:
    """One that it makes itself, a second time, is one."""

    async def test(b: Bench) -> None:
        b.append("once", "twice", "returns")

        async def handle(message: Message) -> None:
            for _ in range({b"once": 1, b"twice": 2}.get(message.value or b"", 0)):
                message.ack()

        consumer = b.consumer()
        running = asyncio.create_task(b.run(consumer, handle, seconds=20))
        await asyncio.sleep(5)
        seen = consumer.stats()
        assert (seen.settled, seen.ignored) == (3, 1)
        await running
        assert consumer.stats().ignored == 1

    bench(test)


def test_error_of_a_handler_that_has_nacked_its_record_changes_nothing() -> None:
    """The nack has ended the delivery: the error is neither a late settle nor another failure."""

    async def test(b: Bench) -> None:
        b.append("x")

        async def handle(message: Message) -> None:
            b.seen.append(message)
            if message.attempt == 1:
                message.nack(5.0)
                raise ValueError("after the nack")

        consumer = b.consumer()
        running = asyncio.create_task(b.run(consumer, handle, seconds=20))
        await asyncio.sleep(10)
        seen = consumer.stats()
        assert (seen.failed, seen.settled, seen.ignored) == (1, 1, 0)
        assert [message.attempt for message in b.seen] == [1, 2]
        await running

    bench(test)


@pytest.mark.parametrize("batch_size", [None, 1])
def test_ack_timeout_of_a_tree_begins_when_the_handler_has_returned(batch_size: int | None) -> None:
    """A branch that nobody settles is delivered again then, and not while the handler works."""

    async def test(b: Bench) -> None:
        b.append("x")
        began: list[float] = []

        async def handle(given: Any) -> None:
            message: Message = given[0] if isinstance(given, Batch) else given
            began.append(b.simulation.clock.monotonic())
            if message.attempt == 1:
                with message.tree() as tree:
                    tree.branch()
                await asyncio.sleep(100)

        await b.run(b.consumer(ack_timeout=10.0), handle, seconds=300, batch_size=batch_size)
        first, again = began
        assert again - first == pytest.approx(100 + 10 + 1)  # the work, the timeout and a back-off
        assert b.committed() == {"0": 1}

    bench(test)
