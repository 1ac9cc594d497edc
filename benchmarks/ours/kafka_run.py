"""Ours, pushed: ``run()`` in KEY order with a handler that sleeps, or does nothing at all.

Handlers go on while the last flush is awaited; what they do then is not counted.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from benchmarks.contestant import Job, Measured, Meter, run
from consumer_sdk import Consumer, Message, Ordering
from consumer_sdk.adapters import KafkaAdapter

Handler = Callable[[Message], Awaitable[None]]


async def contest(job: Job) -> Measured:
    """Handle every message; the clock stops when the acks are durable."""
    adapter = KafkaAdapter(job.topic, bootstrap_servers=job.servers, group=job.group)
    consumer = Consumer(adapter, start="earliest")
    meter = Meter(job)
    handler = sleeping(meter, job.work) if job.work else _idle(meter)
    running = asyncio.create_task(
        consumer.run(handler, concurrency=job.concurrency, ordering=Ordering.KEY)
    )
    await first_to_end(running, meter.finished())
    await consumer.flush()
    measured = meter.measured(until_now=True)
    consumer.stop()
    await running
    return measured


def _idle(meter: Meter) -> Handler:
    async def handle(message: Message) -> None:  # noqa: ARG001 - a handler that does nothing
        if meter.tick() in meter.marks:
            meter.mark()

    return handle


def sleeping(meter: Meter, seconds: float) -> Handler:
    """A handler that waits, then counts its record."""

    async def handle(message: Message) -> None:  # noqa: ARG001 - a handler that looks at nothing
        await asyncio.sleep(seconds)
        if meter.tick() in meter.marks:
            meter.mark()

    return handle


async def first_to_end(running: asyncio.Task[None], finished: Awaitable[None]) -> None:
    """Wait for the last record, but not for ever when ``run`` has failed."""
    waiting = asyncio.ensure_future(finished)
    await asyncio.wait((running, waiting), return_when=asyncio.FIRST_COMPLETED)
    if running.done():
        running.result()
        raise RuntimeError("run() returned before the last record")


if __name__ == "__main__":
    run(contest)
