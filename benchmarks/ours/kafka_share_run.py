"""Ours, a share group: ``run()`` with a handler that sleeps."""

from __future__ import annotations

import asyncio

from benchmarks.contestant import Job, Measured, Meter, run
from benchmarks.ours.kafka_run import first_to_end, sleeping
from consumer_sdk import Consumer, Ordering
from consumer_sdk.adapters import KafkaAdapter


async def contest(job: Job) -> Measured:
    """Handle every message; the clock stops when the broker has all acks."""
    adapter = KafkaAdapter(
        job.topic,
        bootstrap_servers=job.servers,
        share_group=job.group,
        initial_position="earliest",
    )
    consumer, meter = Consumer(adapter), Meter(job)
    work = consumer.run(
        sleeping(meter, job.work), concurrency=job.concurrency, ordering=Ordering.NONE
    )
    running = asyncio.create_task(work)
    await first_to_end(running, meter.finished())
    await consumer.flush()
    measured = meter.measured(until_now=True)
    consumer.stop()
    await running
    return measured


if __name__ == "__main__":
    run(contest)
