"""Ours, a share group pulled in batches: an ack for each record, until all are durable."""

from __future__ import annotations

from benchmarks.contestant import Job, Measured, Meter, run
from consumer_sdk import Consumer
from consumer_sdk.adapters import KafkaAdapter


async def contest(job: Job) -> Measured:
    """Ack every message; the clock stops when the broker has all acks."""
    adapter = KafkaAdapter(
        job.topic,
        bootstrap_servers=job.servers,
        share_group=job.group,
        initial_position="earliest",
    )
    meter = Meter(job)
    async with Consumer(adapter, fetch_records=job.poll) as consumer:
        async for batch in consumer.batches(max_messages=job.poll, max_wait=0.2):
            for message in batch:
                message.ack()
            if meter.count(len(batch)):
                break
        await consumer.flush()
        return meter.measured(until_now=True)


if __name__ == "__main__":
    run(contest)
