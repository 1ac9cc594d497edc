"""Ours, pulled in batches of 500, each acked as a whole, until all are sent."""

from __future__ import annotations

from benchmarks.contestant import Job, Measured, Meter, run
from benchmarks.ours.pulsar import make_consumer
from benchmarks.pulsar_topic import NUMBER, check


async def contest(job: Job) -> Measured:
    """Ack every batch; the clock stops when the broker has all acks."""
    meter = Meter(job)
    read = bytearray()
    async with make_consumer(job) as consumer:
        async for batch in consumer.batches(max_messages=500):
            for message in batch:
                read += (message.value or b"")[:NUMBER]
            batch.ack()
            if meter.count(len(batch)):
                break
        await consumer.flush()
        measured = meter.measured(until_now=True)
        check(read, job.warmup + job.records)
        return measured


if __name__ == "__main__":
    run(contest)
