"""Ours, exactly once: an output for each record, in the transaction that commits it.

The clock stops when the last transaction has committed.
"""

from __future__ import annotations

import asyncio

from benchmarks.contestant import Job, Measured, Meter, run
from benchmarks.ours.kafka_run import first_to_end
from consumer_sdk import Consumer, Message, Ordering
from consumer_sdk.adapters import KafkaAdapter, KafkaTransactions


async def contest(job: Job) -> Measured:
    """Write each record again."""
    adapter = KafkaAdapter(job.topic, bootstrap_servers=job.servers, group=job.group)
    consumer, meter = Consumer(adapter, start="earliest"), Meter(job)

    async def handle(message: Message) -> None:
        message.send(job.target, message.value, key=message.key)
        if meter.tick() in meter.marks:
            meter.mark()

    work = consumer.run(
        handle,
        concurrency=job.concurrency,
        ordering=Ordering.KEY,
        transactions=KafkaTransactions(job.group),
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
