"""Ours, pushed: ``run()`` with a handler that does nothing but note the record."""

from __future__ import annotations

import asyncio

from benchmarks.contestant import Job, Measured, Meter, run
from benchmarks.ours.pulsar import make_consumer
from benchmarks.pulsar_topic import NUMBER, check
from consumer_sdk import Message, Ordering


async def contest(job: Job) -> Measured:
    """Handle every message; the clock stops when the broker has all acks."""
    meter = Meter(job)
    read = bytearray()

    async def handle(message: Message) -> None:
        nonlocal read
        read += (message.value or b"")[:NUMBER]
        if meter.tick() in meter.marks:
            meter.mark()

    consumer = make_consumer(job)
    running = asyncio.create_task(
        consumer.run(handle, concurrency=job.concurrency, ordering=Ordering.NONE)
    )
    finished = asyncio.create_task(meter.finished())
    await asyncio.wait((running, finished), return_when=asyncio.FIRST_COMPLETED)
    if running.done():
        running.result()
        raise RuntimeError("run() returned before the last record")
    await consumer.flush()
    measured = meter.measured(until_now=True)
    check(read, job.warmup + job.records)
    return measured


if __name__ == "__main__":
    run(contest)
