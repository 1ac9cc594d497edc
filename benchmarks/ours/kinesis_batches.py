"""Ours, pulled in batches of 500, each acked as a whole, until all are durable."""

from __future__ import annotations

from benchmarks.contestant import Job, Measured, Meter, run
from benchmarks.ours.kinesis import check_values, make_consumer


async def contest(job: Job) -> Measured:
    """Ack every batch; the clock stops when the flush is durable."""
    meter = Meter(job)
    values: list[bytes | None] = []
    async with make_consumer(job) as consumer:
        async for batch in consumer.batches(max_messages=500, max_wait=0.2):
            values += [message.value for message in batch]
            batch.ack()
            if meter.count(len(batch)):
                break
        await consumer.flush()
        measured = meter.measured(until_now=True)
        check_values(job, values)
        return measured


if __name__ == "__main__":
    run(contest)
