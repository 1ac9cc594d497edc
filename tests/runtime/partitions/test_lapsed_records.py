"""Records that a queue's broker has taken back while they waited here."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from consumer_sdk import Consumer, Hooks, Message, Ordering, Retry
from consumer_sdk.records import Assignment, Partition
from consumer_sdk.testing import MemoryAdapter
from tests.runtime.bench import QUICK, Bench, bench


def consumer_of(b: Bench, hooks: Hooks | None = None) -> Consumer:
    """A consumer of a queue."""
    adapter = MemoryAdapter(b.broker, "s", group="g", subscription="shared")
    return Consumer(adapter, clock=b.simulation.clock, retry=QUICK, hooks=hooks)


def take_back(consumer: Consumer, numbers: Sequence[int]) -> None:
    """What an adapter says of its only partition: each record is an entry."""
    (assignment,) = consumer._engine.holdings
    consumer._engine._assignments.lapsed(assignment, [(number, 0) for number in numbers])


class Listens(Hooks):
    """Has the consumer keep the message of each record."""


@pytest.mark.parametrize("hooks", [None, Listens()])
def test_record_taken_back_while_it_waits_is_not_handled(hooks: Hooks | None) -> None:
    """What runs goes on, and so does what was not taken back; one that waits for its retry has none."""

    async def test(b: Bench) -> None:
        b.append(*map(str, range(8)))
        consumer = consumer_of(b, hooks)

        async def handle(message: Message) -> None:
            b.seen.append(message)
            if message.value == b"1":
                raise Retry(delay=5)
            await asyncio.sleep(1)

        asyncio.get_running_loop().call_later(1.5, take_back, consumer, [0, 1, 2, 3, 4, 99])
        await b.run(consumer, handle, ordering=Ordering.NONE, concurrency=1, seconds=30)
        assert b.values == ["0", "1", "2", "5", "6", "7"]  # 2 was in its handler
        stats = consumer.stats()
        assert (stats.in_flight, stats.retrying, stats.settled) == (0, 0, 5)

    bench(test)


def test_retry_taken_back_while_it_waits_for_a_worker_is_not_handled() -> None:
    """It was due, and has its place in the queue again."""

    async def test(b: Bench) -> None:
        b.append("0", "1")
        consumer = consumer_of(b)

        async def handle(message: Message) -> None:
            b.seen.append(message)
            if message.value == b"0":
                raise Retry(delay=0.1)
            await asyncio.sleep(1)

        asyncio.get_running_loop().call_later(0.5, take_back, consumer, [0])
        await b.run(consumer, handle, ordering=Ordering.NONE, concurrency=1, seconds=10)
        assert b.values == ["0", "1"]
        assert consumer.stats().in_flight == 0

    bench(test)


def test_record_taken_back_is_not_pulled() -> None:
    """Whoever has one already may settle it."""

    async def test(b: Bench) -> None:
        b.append(*map(str, range(5)))
        async with consumer_of(b) as consumer:
            first = await anext(consumer)
            take_back(consumer, [0, 1, 3])
            assert [(await anext(consumer)).value for _ in range(2)] == [b"2", b"4"]
            assert first.ack()
            assert consumer.stats().in_flight == 2

    bench(test)


def test_partition_that_is_not_held_or_no_queue_has_nothing_to_take_back() -> None:
    """It was given up meanwhile; a log takes nothing back."""

    async def test(b: Bench) -> None:
        b.append("0", "1")
        async with b.consumer() as consumer:
            assert (await anext(consumer)).value == b"0"
            take_back(consumer, [1])
            gone = Assignment(Partition("s", "7"), epoch=1)
            consumer._engine._assignments.lapsed(gone, [1])
            assert (await anext(consumer)).value == b"1"

    bench(test)
