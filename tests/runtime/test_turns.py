"""Handlers that use the processor and do not suspend: the event loop turns all the same."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from consumer_sdk import Message
from consumer_sdk.abc import Clock
from tests.runtime.bench import Bench, bench

TURN = 0.05
RECORDS = 2000


class BusyClock(Clock):
    """The virtual time, and what handlers have used of the processor's, which holds the loop."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.used = 0.0

    def monotonic(self) -> float:
        """Virtual seconds, with those used."""
        return self._clock.monotonic() + self.used

    def wall(self) -> float:
        """The same, since 1970."""
        return self._clock.wall() + self.used


@pytest.mark.parametrize("cost", [0.001, 0.005, 0.02])
@pytest.mark.parametrize("suspends", [False, True], ids=["never suspends", "suspends"])
@pytest.mark.parametrize("batch_size", [None, 2], ids=["messages", "batches"])
def test_handlers_use_the_processor_loop_turns_within_the_bound(
    cost: float, batch_size: int | None, *, suspends: bool
) -> None:
    """All workers together hold the loop for a turn, and for the delivery that exceeds it."""

    async def test(b: Bench) -> None:
        b.append(*(f"k{n % 300}={n}" for n in range(RECORDS)))
        clock = BusyClock(b.simulation.clock)
        consumer = b.consumer(clock=clock)
        handled, held = 0, 0.0

        async def handle(given: Any) -> None:
            nonlocal handled
            clock.used += cost
            handled += len(given) if batch_size else 1
            if handled == RECORDS:
                consumer.stop()
            if suspends:
                await asyncio.sleep(0)

        async def look() -> None:
            nonlocal held
            while handled < RECORDS:
                before = clock.used
                await asyncio.sleep(0)
                held = max(held, clock.used - before)

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
        clock = BusyClock(b.simulation.clock)
        consumer = b.consumer(clock=clock)

        async def handle(message: Message) -> None:
            b.seen.append(message)
            clock.used += 0.005
            if len(b.seen) == 100:
                asyncio.get_running_loop().call_soon(consumer.stop)  # as a signal does

        await consumer.run(handle, concurrency=100)
        assert len(b.seen) < 100 + 10 * TURN / 0.005
        assert b.committed() == {"0": len(b.seen)}

    bench(test)
