"""A bare aiokafka loop: batches of 500, nothing acked. What the client itself can do."""

from __future__ import annotations

from aiokafka import AIOKafkaConsumer

from benchmarks.contestant import Job, Measured, Meter, run


async def contest(job: Job) -> Measured:
    """Count records batch by batch."""
    consumer = AIOKafkaConsumer(
        job.topic,
        bootstrap_servers=job.servers,
        group_id=job.group,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
    )
    async with consumer:
        meter = Meter(job)
        while True:
            batches = await consumer.getmany(timeout_ms=1000, max_records=500)
            if meter.count(sum(len(records) for records in batches.values())):
                return meter.measured()


if __name__ == "__main__":
    run(contest)
