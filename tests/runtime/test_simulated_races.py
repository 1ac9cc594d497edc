"""Races that the simulation has found, each as a small test."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from consumer_sdk import Consumer, Ordering
from consumer_sdk.records import AckFlush, Assignment, Message, Outcome, Partition, Run
from consumer_sdk.runtime.dispatch.lanes import Lanes
from consumer_sdk.runtime.dispatch.workers import Workers
from consumer_sdk.runtime.options import LoopClock
from consumer_sdk.runtime.partitions.held_partition import HeldPartition, PartitionCallbacks
from consumer_sdk.runtime.partitions.partition_state import ConsumerContext
from consumer_sdk.stores import MemoryStore
from consumer_sdk.testing import Faults, Simulation, simulate
from consumer_sdk.testing.memory import MemoryAdapter, MemoryBroker
from consumer_sdk.trackers import WatermarkTracker


def test_record_that_arrives_while_the_only_worker_ends_is_processed() -> None:
    """With concurrency 1, a record put between a worker's last look and its end has a worker."""

    async def main(_: Simulation) -> list[int]:
        handled: list[int] = []

        async def handler(message: Message) -> None:
            handled.append(message.position)

        assignment = Assignment(Partition("s", "0"), epoch=1)
        context = ConsumerContext(clock=LoopClock(), queue=Lanes(Ordering.NONE))
        callbacks = PartitionCallbacks(dead_letter=lambda *_: None, reschedule=lambda _: None)
        holding = HeldPartition(assignment, WatermarkTracker(assignment), context, callbacks)

        def put(position: int) -> None:
            run = Run(assignment, [Message.make(assignment, position, b"")])
            holding.track(run)
            workers.lanes.put(holding, run.messages)

        def worker_has_looked() -> None:
            if len(handled) == 1:
                put(1)

        workers = Workers(
            handler,
            1,
            Ordering.NONE,
            has_left=worker_has_looked,
            crashed=lambda error: None,
        )
        put(0)
        await asyncio.sleep(1)
        return handled

    assert simulate(main) == [0, 1]


def test_retry_that_falls_due_during_a_drain_lets_the_loop_turn() -> None:
    """A drain ends when the last record is settled, although a nacked one is due before that."""

    async def main(simulation: Simulation) -> float:
        broker = MemoryBroker()
        broker.create_stream("s")
        broker.append_all("s", [b"nacked", b"slow"])
        consumer = Consumer(MemoryAdapter(broker, "s", group="g"), clock=simulation.clock)
        async with consumer:
            nacked, slow = await anext(consumer), await anext(consumer)
            nacked.nack(delay=0.1)
            asyncio.get_running_loop().call_later(0.5, slow.ack)
            started = simulation.clock.monotonic()
            await consumer.aclose()
            return simulation.clock.monotonic() - started

    assert 0.5 <= simulate(main) < 1.0


def test_transient_fault_of_one_partition_does_not_end_the_consumer() -> None:
    """The adapter has paused the partition: it is resumed after a while, and nothing is missed."""

    async def main(simulation: Simulation) -> list[int]:
        broker, faults = MemoryBroker(), Faults()
        broker.create_stream("s")
        broker.append_all("s", [b"1", b"2"])
        faults.fail_next("fetch.partition", times=3)
        adapter = MemoryAdapter(broker, "s", group="g", faults=faults)
        async with Consumer(adapter, clock=simulation.clock) as consumer:
            found = [await anext(consumer), await anext(consumer)]
            assert consumer.stats().fetch_errors == 3
            return [message.position for message in found]

    assert simulate(main) == [0, 1]


def test_retention_that_passes_the_fetch_starts_a_new_epoch() -> None:
    """T12: with a policy the partition goes on at the earliest record, and is held once."""

    async def main(simulation: Simulation) -> tuple[list[int], int]:
        broker = MemoryBroker()
        broker.create_stream("s")
        broker.append_all("s", [b""] * 10)
        consumer = Consumer(
            MemoryAdapter(broker, "s", group="g"),
            out_of_range="earliest",
            max_in_flight=2,
            fetch_records=2,
            clock=simulation.clock,
        )
        async with consumer:
            old = [await anext(consumer), await anext(consumer)]
            broker.truncate("s", 0, 6)
            assert old[0].ack()
            assert old[1].ack()
            found = [await anext(consumer) for _ in range(2)]
            assert found[0].assignment.epoch > old[0].assignment.epoch
            return [message.position for message in found], len(consumer.stats().partitions)

    assert simulate(main) == ([6, 7], 1)


class _Refuses(MemoryAdapter):
    """Its group's coordinator is away: every commit is to be tried again."""

    commits = 0

    async def commit(self, flushes: Sequence[AckFlush]) -> list[Outcome]:
        self.commits += 1
        assert self.commits < 1000
        return [Outcome.retry(OSError("away")) for _ in flushes]


def test_commit_behind_a_store_that_fails_is_not_repeated_without_a_pause() -> None:
    """Flushing at once does not turn a broker that is away into a busy loop."""

    async def main(simulation: Simulation) -> int:
        broker = MemoryBroker()
        broker.create_stream("s")
        broker.append_all("s", [b"1"])
        adapter = _Refuses(broker, "s", group="g")
        consumer = Consumer(adapter, store=MemoryStore(), flush_interval=0, clock=simulation.clock)
        async with consumer:
            (await anext(consumer)).ack()
            await asyncio.sleep(10)
            return adapter.commits

    assert simulate(main) <= 201
