"""Handlers that take longer than an iterator lives: the place is kept, the lease too."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from consumer_sdk import Consumer, Message
from consumer_sdk.adapters.kinesis.service.service import IteratorExpiredError, Page, Service
from consumer_sdk.stores import MemoryStore
from consumer_sdk.testing import Simulation, simulate
from consumer_sdk.testing.kinesis import FakeKinesis, FakeService, ShardLimits
from tests.adapters.kinesis.harness import FakeAdapter

ITERATOR_LIFE = 300.0
RECORDS = 9


class CountingService(FakeService):
    """Counts the iterators that had expired when they were used."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.expired = 0

    async def records(self, iterator: str, limit: int) -> Page:
        """See `FakeService.records`."""
        try:
            return await super().records(iterator, limit)
        except IteratorExpiredError:
            self.expired += 1
            raise


class Slow:
    """A stream whose answers are small, and one consumer that takes six minutes for each record.

    Attributes:
        numbers: of the records that were handled.
    """

    def __init__(self, simulation: Simulation, **options: Any) -> None:
        # Two records in an answer: the shard has more than is read ahead.
        self.kinesis = FakeKinesis(simulation.clock, limits=ShardLimits(answer=4))
        self.kinesis.create_stream("s")
        self.service = CountingService(self.kinesis, "s")
        self.numbers: list[int] = []
        self.store = MemoryStore()
        adapter = FakeAdapter("s", make_service=self._service, **{"group": "g"} | options)
        store = None if adapter.group is None else self.store
        self.consumer = Consumer(
            adapter, store=store, max_in_flight=2, fetch_records=2, clock=simulation.clock
        )

    def _service(self) -> Service:
        return self.service

    async def handle(self, message: Message) -> None:
        """Slow."""
        await asyncio.sleep(1.2 * ITERATOR_LIFE)
        self.numbers.append(int(message.value or b"-1"))

    async def run(self) -> None:
        """Until all records were handled; half of them come while it is busy."""
        running = asyncio.create_task(
            self.consumer.run(self.handle, concurrency=1, handle_signals=False)
        )
        for number in range(RECORDS):
            self.kinesis.put("s", b"%d" % number, "k")
            await asyncio.sleep(100 if number % 2 else 0)
        while len(self.numbers) < RECORDS:
            assert not running.done()
            await asyncio.sleep(60)
        self.consumer.stop()
        await running


@pytest.mark.parametrize(
    "options",
    [
        {},
        pytest.param({"group": None}, marks=pytest.mark.campaign),
        pytest.param({"buffer_bytes": 1}, marks=pytest.mark.campaign),
    ],
    ids=str,
)
def test_handler_slower_than_an_iterator_lives_loses_and_repeats_nothing(
    options: dict[str, Any],
) -> None:
    """Kinesis trap 12: with full buffers for hours, each record comes once and in order."""

    async def main(simulation: Simulation) -> tuple[list[int], int]:
        slow = Slow(simulation, **options)
        await slow.run()
        return slow.numbers, slow.service.expired

    numbers, expired = simulate(main, time_limit=3 * 60 * 60)
    assert numbers == list(range(RECORDS))
    assert expired >= 3


def test_slow_members_lease_is_never_lost() -> None:
    """Kinesis trap 12: renewing does not wait for handlers; another member gets nothing of it."""

    async def main(simulation: Simulation) -> tuple[list[int], int]:
        slow = Slow(simulation)
        other = FakeAdapter("s", group="g", make_service=lambda: FakeService(slow.kinesis, "s"))
        seen: list[Message] = []

        async def handle(message: Message) -> None:
            seen.append(message)

        second = Consumer(other, store=slow.store.handle(), clock=simulation.clock)
        working = asyncio.create_task(slow.run())
        while not slow.numbers:
            await asyncio.sleep(1)
        idle = asyncio.create_task(second.run(handle, handle_signals=False))
        await working
        second.stop()
        await idle
        return slow.numbers, len(seen)

    assert simulate(main, time_limit=3 * 60 * 60) == (list(range(RECORDS)), 0)
