"""Ours, pulled message by message: ``async for`` and an ack for each, until all are durable."""

from __future__ import annotations

from benchmarks.contestant import Job, Measured, Meter, run
from benchmarks.ours.kinesis import check_values, make_consumer


async def contest(job: Job) -> Measured:
    """Ack every message; the clock stops when the flush is durable."""
    meter = Meter(job)
    values: list[bytes | None] = []
    async with make_consumer(job) as consumer:
        async for message in consumer:
            values.append(message.value)
            message.ack()
            if meter.tick() in meter.marks and meter.mark():
                break
        await consumer.flush()
        measured = meter.measured(until_now=True)
        check_values(job, values)
        return measured


if __name__ == "__main__":
    run(contest)
