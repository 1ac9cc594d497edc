"""Ours, pushed: ``run()`` in KEY order with a handler that does nothing but keep the value."""

from __future__ import annotations

import asyncio

from benchmarks.contestant import Job, Measured, Meter, run
from benchmarks.ours.kinesis import check_values, make_consumer
from consumer_sdk import Message, Ordering


async def contest(job: Job) -> Measured:
    """Handle every message; the clock stops when the acks are durable."""
    meter = Meter(job)
    values: list[bytes | None] = []

    async def handle(message: Message) -> None:
        values.append(message.value)
        if meter.tick() in meter.marks:
            meter.mark()

    consumer = make_consumer(job)
    running = asyncio.create_task(
        consumer.run(handle, concurrency=job.concurrency, ordering=Ordering.KEY)
    )
    finished = asyncio.create_task(meter.finished())
    await asyncio.wait((running, finished), return_when=asyncio.FIRST_COMPLETED)
    if running.done():
        running.result()
        raise RuntimeError("run() returned before the last record")
    await consumer.flush()
    measured = meter.measured(until_now=True)
    # Keys overtake one another.
    check_values(job, sorted(value or b"" for value in values))
    return measured


if __name__ == "__main__":
    run(contest)
