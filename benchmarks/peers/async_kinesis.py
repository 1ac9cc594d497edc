"""async-kinesis 3 from PyPI, at its best: no limits, no sleeps, checkpoints in memory.

Its records are payloads alone. Between two looks at its fetches it sleeps for 0.2 seconds, which is
no option.
"""

from __future__ import annotations

import os

from kinesis import Consumer
from kinesis.processors import Processor

from benchmarks.contestant import Job, Measured, Meter, run
from benchmarks.kinesis.records import check


class Raw(Processor):  # type: ignore[misc]  # the package is not typed
    """Data as it is: its own processors decode text at least."""

    def parse(self, data: bytes) -> tuple[bytes]:
        """The one record that this is."""
        return (data,)


async def contest(job: Job) -> Measured:
    """Count records one by one; the next one acks those before it."""
    os.environ |= {"AWS_ACCESS_KEY_ID": "any", "AWS_SECRET_ACCESS_KEY": "any"}
    consumer = Consumer(
        job.topic,
        endpoint_url=job.servers,
        region_name="us-east-1",
        use_list_shards=True,
        shard_fetch_rate=1_000,
        sleep_time_no_records=0,
        # How many records are read ahead; the job says, since the best is not known beforehand.
        max_queue_size=job.concurrency,
        # asyncio's wait_for makes a task for each record, unless there is no timeout.
        idle_timeout=None,
        processor=Raw(),
    )
    meter = Meter(job)
    values: list[bytes] = []
    async with consumer:
        async for value in consumer:
            values.append(value)
            if meter.tick() in meter.marks and meter.mark():
                break
        measured = meter.measured()
        check(values, job.warmup + job.records)
        return measured


if __name__ == "__main__":
    run(contest)
