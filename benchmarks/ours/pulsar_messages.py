"""Ours, pulled message by message: ``async for`` and an ack for each, until all are sent."""

from __future__ import annotations

from benchmarks.contestant import Job, Measured, Meter, run
from benchmarks.ours.pulsar import make_consumer
from benchmarks.pulsar_topic import NUMBER, check


async def contest(job: Job) -> Measured:
    """Ack every message; the clock stops when the broker has all acks."""
    meter = Meter(job)
    read = bytearray()
    async with make_consumer(job) as consumer:
        async for message in consumer:
            read += (message.value or b"")[:NUMBER]
            message.ack()
            if meter.tick() in meter.marks and meter.mark():
                break
        await consumer.flush()
        measured = meter.measured(until_now=True)
        check(read, job.warmup + job.records)
        return measured


if __name__ == "__main__":
    run(contest)
