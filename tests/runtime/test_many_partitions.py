"""What a consumer of many partitions costs, and how long it keeps the event loop; counted."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Sequence
from typing import Any, Self

import pytest

from consumer_sdk import Consumer, Message, Ordering, RetryPolicy
from consumer_sdk.abc import AssignmentOwner, LeaseSource
from consumer_sdk.records import AckFlush, Outcome, Partition
from consumer_sdk.runtime.dispatch.lanes import Lanes
from consumer_sdk.testing import MemoryAdapter, MemoryBroker, Simulation, simulate
from tests.runtime.bench import Bench, bench
from tests.runtime.partitions.held import unordered

MANY = 1_000
RECORDS = 4_000


class _Adapter(MemoryAdapter):
    """Keeps how many flushes each commit had."""

    sizes: list[int]

    async def commit(self, flushes: Sequence[AckFlush]) -> list[Outcome]:
        self.sizes.append(len(flushes))
        return await super().commit(flushes)


class _Calls:
    """Counts calls, in all and in the longest time that the event loop was held."""

    def __init__(self) -> None:
        self.total = 0
        self.longest = 0
        self._held = 0

    def __enter__(self) -> Self:
        sys.setprofile(self._count)
        return self

    def __exit__(self, *exc_info: object) -> None:
        sys.setprofile(None)

    def _count(self, frame: Any, event: str, _argument: Any) -> None:
        if event not in {"call", "c_call"}:
            return
        self.total += 1
        self._held += 1
        self.longest = max(self.longest, self._held)
        if frame.f_code.co_name == "_run" and event == "call":  # asyncio.Handle's: a turn begins
            self._held = 0


def _calls_for(partitions: int) -> int:
    """Of a whole consumer that holds so many, all of whose records are in ten of them."""

    async def main(simulation: Simulation) -> int:
        bench = Bench(simulation, partitions)
        for number in range(10):
            bench.broker.append_all("s", [b"first"], partition=number)
        async with bench.consumer() as consumer:
            batches = consumer.batches()
            seen = sum([batch.ack() for batch in [await anext(batches)]])
            await consumer.flush()
            await asyncio.sleep(5)
            for number in range(10):
                bench.broker.append_all("s", [b"v"] * (RECORDS // 10), partition=number)
            with _Calls() as calls:
                while seen < RECORDS + 10:
                    seen += (await anext(batches)).ack()
                await asyncio.sleep(0.5)  # the flush too
        return calls.total

    return simulate(main)


def test_partitions_that_have_nothing_cost_nothing() -> None:
    """Neither a fetch, a flush nor an ack looks at them: ten busy ones cost the same among many."""
    assert _calls_for(MANY) < 1.2 * _calls_for(10)


def _calls_while_full(partitions: int) -> int:
    """Of ten seconds in which one that holds so many waits for its records to be settled."""

    async def main(simulation: Simulation) -> int:
        bench = Bench(simulation, partitions)
        for number in range(10):
            bench.broker.append_all("s", [b"v"] * 20, partition=number)
        async with bench.consumer(max_in_flight=100) as consumer:
            await anext(consumer.batches())
            await asyncio.sleep(5)
            with _Calls() as calls:
                await asyncio.sleep(10)
        return calls.total

    return simulate(main)


def test_looking_after_a_full_consumer_costs_the_same_with_many_partitions() -> None:
    """What is in flight is a sum: nobody asks each partition, twice a second, for its part."""
    assert _calls_while_full(MANY) < 1.2 * _calls_while_full(10)


def test_flush_of_many_partitions_gives_the_loop_back() -> None:
    """It is written in parts, and all of it arrives."""

    async def main(simulation: Simulation) -> tuple[list[int], int]:
        broker = MemoryBroker(wall=simulation.clock.wall)
        broker.create_stream("s", MANY)
        broker.append_all("s", [b"v"] * MANY)
        adapter = _Adapter(broker, "s", group="g")
        adapter.sizes = []
        async with Consumer(adapter, clock=simulation.clock, flush_interval=3600.0) as consumer:
            messages: list[Message] = []
            async for batch in consumer.batches():
                messages += batch
                if len(messages) == MANY:
                    break
            await consumer.flush()
            adapter.sizes.clear()
            for message in messages:
                message.ack()
            await consumer.flush()
            return adapter.sizes, len(broker.committed("g", "s"))

    sizes, committed = simulate(main)

    assert (max(sizes), sum(sizes), committed) == (250, MANY, MANY)


def test_flush_that_is_cancelled_between_its_parts_loses_nothing() -> None:
    """What was not written yet is written by the next one."""

    async def main(simulation: Simulation) -> int:
        broker = MemoryBroker(wall=simulation.clock.wall)
        broker.create_stream("s", MANY)
        broker.append_all("s", [b"v"] * MANY)
        consumer = Consumer(MemoryAdapter(broker, "s", group="g"), clock=simulation.clock)
        async with consumer:
            seen = 0
            async for batch in consumer.batches():
                seen += batch.ack()
                if seen == MANY:
                    break
            flushing = asyncio.create_task(consumer.flush())
            await asyncio.sleep(0)
            flushing.cancel()
        return sum(broker.committed("g", "s").values())

    assert simulate(main) == MANY


def test_timeouts_of_many_records_give_the_loop_back() -> None:
    """10 000 deliveries expire together, and no turn of the loop has more than a part of them."""

    async def main(simulation: Simulation) -> tuple[int, int]:
        bench = Bench(simulation)
        bench.broker.append_all("s", [b"v"] * 10_000)
        retry = RetryPolicy(max_attempts=9, initial=60.0, jitter=0.0)
        consumer = bench.consumer(ack_timeout=5.0, max_in_flight=50_000, retry=retry)
        async with consumer:
            inbox = consumer.batches(max_messages=10_000)
            kept: list[Message] = []
            while len(kept) < 10_000:
                kept += await anext(inbox)
            with _Calls() as calls:
                await asyncio.sleep(6)
            for message in kept:
                message.ack()
            return consumer.stats().failed, calls.longest

    failed, longest = simulate(main)

    assert failed == 10_000
    assert longest < 250_000  # and 2.4 million in all


@pytest.mark.parametrize("ordering", [Ordering.NONE, Ordering.PARTITION])
def test_purge_of_many_holdings_costs_what_they_hold(ordering: Ordering) -> None:
    """Twice as many partitions with half as many records each: no more work."""

    def calls(partitions: int, each: int) -> int:
        lanes = Lanes(ordering)
        holdings = [unordered(number) for number in range(partitions)]
        for holding in holdings:
            messages = [Message.make(holding.assignment, at, b"") for at in range(each)]
            lanes.put(holding, messages)
        with _Calls() as counted:
            purged = lanes.purge(holdings)
        assert {len(messages) for messages in purged.values()} == {each}
        assert (len(purged), lanes.available) == (partitions, 0)
        return counted.total

    assert calls(400, 10) < 2 * calls(40, 100) + 400 * 20


def test_forced_flush_carries_what_was_settled_before_whatever_is_settled_meanwhile() -> None:
    """Those that turn dirty while it is written, and are due before, do not take its place."""

    async def test(b: Bench) -> None:
        for number in range(PARTITIONS):
            b.broker.append_all("s", [b"1", b"2"], partition=number)
        adapter = _Settling(b.broker, "s", group="g")
        consumer = Consumer(adapter, clock=b.simulation.clock, flush_interval=1000.0)
        async with consumer:
            heads, tails = [], []
            for _ in range(PARTITIONS):
                heads.append(await anext(consumer))
                tails.append(await anext(consumer))
            assert all(message.ack() for message in heads[::2])
            await consumer.flush()
            assert all(message.ack() for message in tails[::2])
            adapter.waiting = heads[1::2]
            began = b.simulation.clock.monotonic()
            await consumer.flush()
            assert b.simulation.clock.monotonic() - began < 10

    bench(test, partitions=PARTITIONS)


PARTITIONS = 600


class _Settling(MemoryAdapter):
    """While it commits, some messages are acked."""

    waiting: Sequence[Message] = ()

    async def commit(self, flushes: Sequence[AckFlush]) -> list[Outcome]:
        some, self.waiting = self.waiting[:250], self.waiting[250:]
        for message in some:
            message.ack()
        await asyncio.sleep(0.01)
        return await super().commit(flushes)


class _Told(MemoryAdapter):
    """Keeps whom it tells of assignments, so that a test can tell it too."""

    owner: Any = None

    async def open(self, owner: AssignmentOwner, leases: LeaseSource | None = None) -> None:
        self.owner = owner
        await super().open(owner, leases)


async def _with_waiting(
    simulation: Simulation, partitions: int, each: int, test: Callable[[Any, Consumer], Any]
) -> list[Message]:
    """Runs ``test`` while ten handlers hang and all other records wait; returns what was handed out."""
    b = Bench(simulation, partitions)
    for number in range(partitions):
        b.broker.append_all("s", [b"v"] * each, partition=number)
    adapter, records = _Told(b.broker, "s", group="g"), partitions * each
    limits: dict[str, Any] = {"max_in_flight": 2 * records, "max_in_flight_per_partition": records}
    consumer = Consumer(adapter, clock=simulation.clock, drain_timeout=0.1, **limits)

    async def hang(message: Message) -> None:
        b.seen.append(message)
        await asyncio.sleep(3600)

    running = asyncio.create_task(consumer.run(hang, concurrency=10, ordering=Ordering.NONE))
    while consumer.stats().fetched < records:
        await asyncio.sleep(0.1)
    await test(adapter.owner, consumer)
    consumer.stop()
    await running
    return b.seen


def test_losing_many_partitions_hands_nothing_out_and_gives_the_loop_back() -> None:
    """They are closed together, and what waits for them is not looked at one by one."""
    longest = 0

    async def lose(owner: Any, consumer: Consumer) -> None:
        nonlocal longest
        with _Calls() as calls:
            owner.lost(list(owner.holdings))
            assert consumer.stats().in_flight == 0
            assert consumer.stats().partitions == ()
            await asyncio.sleep(1)
        longest = calls.longest

    seen = simulate(lambda simulation: _with_waiting(simulation, MANY, 10, lose))

    assert len(seen) == 10
    assert not any(message.ack() for message in seen)
    assert longest < 30 * MANY  # and 73 times as many, looked at one by one


@pytest.mark.parametrize("end", ["fenced", "start_anew"])
def test_partitions_that_end_one_by_one_cost_what_they_hold(end: str) -> None:
    """There is one look through all that waits, and not one for each of them."""

    def calls_with(each: int) -> int:
        total = 0

        async def end_all(owner: Any, consumer: Consumer) -> None:
            nonlocal total
            arguments = [None] if end == "fenced" else []
            with _Calls() as calls:
                for holding in list(owner.holdings.values()):
                    getattr(owner, end)(holding, *arguments)
                await asyncio.sleep(0)
            total = calls.total
            assert consumer.stats().in_flight == 0

        seen = simulate(lambda simulation: _with_waiting(simulation, 50, each, end_all))
        assert not any(message.ack() for message in seen)
        return total

    assert calls_with(100) < calls_with(10) + 4 * 50 * (100 - 10)


def test_partition_lost_in_the_middle_of_a_run_is_not_handed_out_any_more() -> None:
    """Neither what was opened nor what waits; all of the other partition comes."""

    async def main(simulation: Simulation) -> tuple[list[Message], bool]:
        b = Bench(simulation, 2)
        for number in range(2):
            b.broker.append_all("s", [b"v"] * 50, partition=number)
        adapter = _Told(b.broker, "s", group="g")
        async with Consumer(adapter, clock=simulation.clock, fetch_records=20) as consumer:
            first = await anext(consumer)
            await asyncio.sleep(1)
            adapter.owner.lost([a for a in adapter.owner.holdings if a == first.assignment])
            seen = [await anext(consumer) for _ in range(50)]
            assert sum(message.ack() for message in seen) == 50
            await consumer.flush()
            assert consumer.stats().in_flight == 0
        return [first, *seen], first.ack()

    (first, *seen), has_acked = simulate(main)

    assert {message.partition for message in seen} == {Partition("s", "1")} - {first.partition}
    assert not has_acked


@pytest.mark.parametrize("batch_size", [None, 4])
@pytest.mark.parametrize("ordering", list(Ordering))
def test_partition_lost_while_handlers_run_others_go_on(
    ordering: Ordering, batch_size: int | None
) -> None:
    """What waited for the lost one is passed over, and counts as nothing."""

    async def main(simulation: Simulation) -> list[Partition]:
        b = Bench(simulation, 2)
        for number in range(40):
            b.broker.append("s", b"v", key=b"%d" % (number % 5), partition=number % 2)
        adapter = _Told(b.broker, "s", group="g")
        consumer = Consumer(adapter, clock=simulation.clock, drain_timeout=1.0)
        seen: list[Partition] = []
        may_end = asyncio.Event()

        async def handle(given: Any) -> None:
            messages = [given] if batch_size is None else given
            await may_end.wait()
            seen.extend(message.partition for message in messages)

        run = consumer.run(handle, concurrency=4, ordering=ordering, batch_size=batch_size)
        running = asyncio.create_task(run)
        while consumer.stats().fetched < 40:
            await asyncio.sleep(0.1)
        lost = next(a for a in adapter.owner.holdings if a.partition == Partition("s", "0"))
        adapter.owner.lost([lost])
        may_end.set()
        await asyncio.sleep(5)
        assert consumer.stats().in_flight == 0
        consumer.stop()
        await running
        return seen

    seen = simulate(main)

    assert seen.count(Partition("s", "1")) == 20
    assert len(seen) - 20 <= 4 * (batch_size or 1)  # a handler that had records of both
