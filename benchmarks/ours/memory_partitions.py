"""Ours, on the in-memory broker with many partitions: a backlog read from its start to its end.

Nothing is timed until all partitions are held. Everything that was there before is left out of the
garbage collector's passes, or a topic of millions of records would be what is measured.
"""

from __future__ import annotations

import asyncio
import gc

from benchmarks.contestant import Job, Measured, Meter, run
from consumer_sdk import Consumer, Message, Ordering
from consumer_sdk.testing.memory import MemoryAdapter, MemoryBroker
from consumer_sdk.testing.memory.log import StoredRecord

RECORD = StoredRecord(None, b"v" * 100, (), 0)
STREAM = "s"


def broker_with(partitions: int, records: int) -> MemoryBroker:
    """A broker with a stream of so many partitions and records."""
    broker = MemoryBroker()
    broker.create_stream(STREAM, partitions)
    for number in range(partitions):
        broker.stream(STREAM).logs[number].append([RECORD] * (records // partitions))
    gc.collect()
    gc.freeze()
    return broker


async def all_held(consumer: Consumer, partitions: int) -> None:
    """Waits until the group has given all partitions to the consumer."""
    while len(consumer.stats().partitions) < partitions:  # noqa: ASYNC110 - nobody tells
        await asyncio.sleep(0.05)


async def contest(job: Job) -> Measured:
    """Ack batch by batch, or by a handler (``concurrency`` above 1); until all is durable."""
    spare = job.partitions  # the last mark is behind the last record that is timed
    broker = broker_with(job.partitions, job.warmup + job.records + spare)
    meter = Meter(job)
    async with Consumer(MemoryAdapter(broker, STREAM, group="benchmark")) as consumer:
        await all_held(consumer, job.partitions)
        gc.freeze()
        await (_run if job.concurrency > 1 else _pull)(consumer, meter, job)
        return meter.measured(until_now=True)


async def _pull(consumer: Consumer, meter: Meter, _job: Job) -> None:
    async for batch in consumer.batches(max_messages=500):
        batch.ack()
        if meter.count(len(batch)):
            break
    await consumer.flush()


async def _run(consumer: Consumer, meter: Meter, job: Job) -> None:
    async def handle(message: Message) -> None:  # noqa: ARG001 - a handler that does nothing
        if meter.tick() in meter.marks:
            meter.mark()

    running = asyncio.create_task(
        consumer.run(handle, concurrency=job.concurrency, ordering=Ordering.KEY)
    )
    await meter.finished()
    await consumer.flush()
    consumer.stop()
    await running


if __name__ == "__main__":
    run(contest)
