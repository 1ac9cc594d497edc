"""Who uses the processor and does not suspend, in `run` or pulling: the event loop turns all the same."""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections.abc import AsyncIterator
from typing import Any

import pytest

from consumer_sdk import Consumer, Message
from consumer_sdk.abc import AssignmentOwner, LeaseSource
from consumer_sdk.testing import MemoryAdapter, SimulationLoop
from tests.runtime.bench import Bench, bench

TURN = 0.05
RECORDS = 2000


def _work(seconds: float) -> None:
    """What a handler, or a loop's body, does with the processor: time goes on, and the event loop stands still."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, SimulationLoop)
    loop.jump(seconds)


@pytest.mark.parametrize("cost", [0.001, 0.005, 0.02])
@pytest.mark.parametrize("suspends", [False, True], ids=["never suspends", "suspends"])
@pytest.mark.parametrize("batch_size", [None, 2], ids=["messages", "batches"])
def test_handlers_use_the_processor_loop_turns_within_the_bound(
    cost: float, batch_size: int | None, *, suspends: bool
) -> None:
    """All workers together hold the loop for a turn, and for the delivery that exceeds it."""

    async def test(b: Bench) -> None:
        b.append(*(f"k{n % 300}={n}" for n in range(RECORDS)))
        consumer, time = b.consumer(), asyncio.get_running_loop().time
        handled, held = 0, 0.0

        async def handle(given: Any) -> None:
            nonlocal handled
            _work(cost)
            handled += len(given) if batch_size else 1
            if handled == RECORDS:
                consumer.stop()
            if suspends:
                await asyncio.sleep(0)

        async def look() -> None:
            nonlocal held
            while handled < RECORDS:
                before = time()
                await asyncio.sleep(0)
                held = max(held, time() - before)

        looking = asyncio.create_task(look())
        await consumer.run(handle, batch_size=batch_size, concurrency=100)
        await looking
        assert held < TURN + 1.01 * cost
        assert b.committed() == {"0": RECORDS}

    bench(test)


def test_quick_handlers_never_suspend_next_fetch_is_asked_for_meanwhile() -> None:
    """The loop turns after some hundreds of deliveries too, however little time they take."""

    async def test(b: Bench) -> None:
        b.append(*(str(n) for n in range(RECORDS)))
        consumer, turns = b.consumer(fetch_records=RECORDS), 0

        async def handle(message: Message) -> None:
            b.seen.append(message)
            if len(b.seen) == RECORDS:
                consumer.stop()

        async def count() -> None:
            nonlocal turns
            while len(b.seen) < RECORDS:
                turns += bool(b.seen)
                await asyncio.sleep(0)

        counting = asyncio.create_task(count())
        await consumer.run(handle)
        await counting
        assert turns >= RECORDS // 500 - 1

    bench(test)


def test_stop_while_handlers_use_the_processor_ends_the_run_within_a_few_turns() -> None:
    """What waits for a worker is not handed out any more, however many workers there are."""

    async def test(b: Bench) -> None:
        b.append(*(str(n) for n in range(RECORDS)))
        consumer = b.consumer()

        async def handle(message: Message) -> None:
            b.seen.append(message)
            _work(0.005)
            if len(b.seen) == 100:
                asyncio.get_running_loop().call_soon(consumer.stop)  # as a signal does

        await consumer.run(handle, concurrency=100)
        assert len(b.seen) < 100 + 10 * TURN / 0.005
        assert b.committed() == {"0": len(b.seen)}

    bench(test)


# -- pulling ----------------------------------------------------------------------------------


async def _pulled(consumer: Consumer, size: int | None) -> AsyncIterator[list[Message]]:
    if size is None:
        async for message in consumer:
            yield [message]
    else:
        async for batch in consumer.batches(max_messages=size):
            yield batch


@pytest.mark.parametrize("cost", [0.001, 0.005, 0.02])
@pytest.mark.parametrize("size", [None, 2], ids=["messages", "batches"])
def test_loop_over_messages_uses_the_processor_loop_turns_within_the_bound(
    cost: float, size: int | None
) -> None:
    """The bound of `run`: a turn, and what exceeds it; acks are flushed meanwhile."""

    async def test(b: Bench) -> None:
        b.append(*(str(n) for n in range(RECORDS)))
        time = asyncio.get_running_loop().time
        worked, held, flushed = 0.0, 0.0, 0

        async def look() -> None:
            nonlocal held, flushed
            while len(b.seen) < RECORDS:
                before = worked
                await asyncio.sleep(0)
                held = max(held, worked - before)
                flushed = max(flushed, b.committed().get("0", 0))

        async with b.consumer(fetch_records=RECORDS) as consumer:
            looking: asyncio.Task[None] | None = None
            async for messages in _pulled(consumer, size):
                looking = looking or asyncio.create_task(look())
                began = time()
                _work(cost * len(messages))
                worked += time() - began
                b.seen += messages
                for message in messages:
                    message.ack()
                if len(b.seen) == RECORDS:
                    break
            assert looking is not None
            await looking
        assert held < TURN + 1.01 * cost * (size or 1)
        assert flushed > RECORDS * 3 // 4
        assert [message.position for message in b.seen] == list(range(RECORDS))
        assert b.committed() == {"0": RECORDS}

    bench(test)


@pytest.mark.parametrize("takes_batches", [False, True])
def test_pulls_cancelled_while_the_loop_turns_lose_nothing(*, takes_batches: bool) -> None:
    """What was queued when the turn began is there for whoever pulls next."""

    async def test(b: Bench) -> None:
        b.append(*(str(n) for n in range(60)))
        async with b.consumer(fetch_records=60) as consumer:
            batches = consumer.batches(max_messages=1)
            b.seen.append(await anext(consumer))
            rounds = cancelled = 0
            while len(b.seen) < 60:
                rounds += 1
                _work(2 * TURN)
                pull: Any = batches if takes_batches else consumer
                pulling = asyncio.create_task(pull.__anext__())
                # In the turn itself, when it is over, and when the record is there.
                for _ in range(rounds % 5):
                    await asyncio.sleep(0)
                pulling.cancel()
                try:
                    found = await pulling
                except asyncio.CancelledError:
                    cancelled += 1
                else:
                    b.seen.append(found[0] if isinstance(found, list) else found)
            assert cancelled > 10
        assert [message.position for message in b.seen] == list(range(60))

    bench(test)


@pytest.mark.parametrize("takes_batches", [False, True])
def test_stop_while_the_loop_turns_ends_the_iteration(*, takes_batches: bool) -> None:
    """A signal's callback runs in that turn: nothing more is handed out."""

    async def test(b: Bench) -> None:
        b.append(*(str(n) for n in range(100)))
        async with b.consumer(fetch_records=100) as consumer:
            async for messages in _pulled(consumer, 1 if takes_batches else None):
                b.seen += messages
                _work(2 * TURN)
                for message in messages:
                    message.ack()
                asyncio.get_running_loop().call_soon(consumer.stop)
        assert len(b.seen) == 1
        assert b.committed() == {"0": 1}

    bench(test)


def test_worker_that_has_ended_is_freed_without_the_garbage_collector() -> None:
    """Each fetch of a quiet topic makes one: were it a cycle of references, full passes would come all the time."""
    workers: list[weakref.ref[asyncio.Task[Any]]] = []

    async def handle(_message: Message) -> None:
        task = asyncio.current_task()
        assert task is not None
        workers.append(weakref.ref(task))

    async def test(b: Bench) -> None:
        consumer = b.consumer()
        running = asyncio.create_task(consumer.run(handle))
        for number in range(10):
            b.append(str(number))
            await asyncio.sleep(1)
        consumer.stop()
        await running
        assert len(workers) == 10
        assert not any(worker() for worker in workers)

    gc.disable()
    try:
        bench(test)
    finally:
        gc.enable()


class OwnedAdapter(MemoryAdapter):
    """Knows whom it grants partitions to."""

    owner: AssignmentOwner

    async def open(self, owner: AssignmentOwner, leases: LeaseSource | None = None) -> None:
        """Opens it."""
        self.owner = owner
        await super().open(owner, leases)


def test_partition_lost_while_the_loop_turns_hands_out_nothing_of_it() -> None:
    """The queue is emptied in that turn; what comes next is of the new epoch, from the commit on."""

    async def test(b: Bench) -> None:
        b.append(*(str(n) for n in range(100)))
        adapter = OwnedAdapter(b.broker, "s", group="g")
        async with Consumer(adapter, clock=b.simulation.clock) as consumer:
            first = await anext(consumer)

            def lose() -> None:
                adapter.expire()
                adapter.owner.lost([first.assignment])

            _work(2 * TURN)
            asyncio.get_running_loop().call_soon(lose)
            again = await anext(consumer)
            assert again.assignment.epoch > first.assignment.epoch
            assert again.position == 0

    bench(test)
