"""Ours, pulled message by message: ``async for`` and an ack for each, until all are durable."""

from __future__ import annotations

from benchmarks.contestant import Job, Measured, Meter, run
from consumer_sdk import Consumer
from consumer_sdk.adapters import KafkaAdapter


async def contest(job: Job) -> Measured:
    """Ack every message; the clock stops when the flush is durable."""
    adapter = KafkaAdapter(job.topic, bootstrap_servers=job.servers, group=job.group)
    meter = Meter(job)
    async with Consumer(adapter, start="earliest") as consumer:
        async for message in consumer:
            message.ack()
            if meter.tick() in meter.marks and meter.mark():
                break
        await consumer.flush()
        return meter.measured(until_now=True)


if __name__ == "__main__":
    run(contest)
