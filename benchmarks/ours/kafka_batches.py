"""Ours, pulled in batches of 500, each acked as a whole, until all are durable."""

from __future__ import annotations

from benchmarks.contestant import Job, Measured, Meter, run
from consumer_sdk import Consumer
from consumer_sdk.adapters import KafkaAdapter


async def contest(job: Job) -> Measured:
    """Ack every batch; the clock stops when the flush is durable."""
    adapter = KafkaAdapter(job.topic, bootstrap_servers=job.servers, group=job.group)
    meter = Meter(job)
    async with Consumer(adapter, start="earliest") as consumer:
        async for batch in consumer.batches(max_messages=500, max_wait=0.2):
            batch.ack()
            if meter.count(len(batch)):
                break
        await consumer.flush()
        return meter.measured(until_now=True)


if __name__ == "__main__":
    run(contest)
