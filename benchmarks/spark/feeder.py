"""A program: a consumer that feeds a whole topic to a directory, once it is told to go.

It says ``ready`` when everything is imported, starts at the first line of its input, and says at
the end how many megabytes it had at most.
"""

from __future__ import annotations

import asyncio
import gc
import json
import logging
import os
import sys
from collections import deque

from benchmarks.spark.job import SparkJob
from benchmarks.spark.processes import peak_mb
from consumer_sdk import Batch, Consumer
from consumer_sdk.adapters import KafkaAdapter
from consumer_sdk.spark_bridge import SparkFeed
from consumer_sdk.spark_bridge.arrow import warm_up

BATCH = 2_000
WRITES = 24
"""Batches that may wait for their segment: while one is written, the next ones are fetched."""

COLLECT_AT = 500_000
"""More objects than are in flight."""


async def feed(job: SparkJob, directory: str) -> None:
    """Every record of the topic, acked when it is durable in the feed."""
    adapter = KafkaAdapter(job.topic, bootstrap_servers=job.servers, group=job.group)
    async with (
        SparkFeed(directory) as target,
        Consumer(adapter, start="earliest", max_in_flight=4 * BATCH * WRITES) as consumer,
    ):
        await _all(consumer, target, job.rows)
        await consumer.flush()


async def _all(consumer: Consumer, target: SparkFeed, rows: int) -> None:
    writes: deque[asyncio.Task[None]] = deque()
    done = 0
    async for batch in consumer.batches(max_messages=BATCH, max_wait=0.05):
        writes.append(asyncio.create_task(_one(batch, target)))
        done += len(batch)
        while len(writes) >= WRITES or (done >= rows and writes):
            await writes.popleft()
        if done >= rows:
            return


async def _one(batch: Batch, target: SparkFeed) -> None:
    await target.put_many(batch)
    batch.ack()


def main() -> None:
    """``python -m benchmarks.spark.feeder JOB DIRECTORY``."""
    logging.disable(logging.WARNING)
    gc.set_threshold(COLLECT_AT)  # see "Garbage collection" in docs/back-pressure.md
    job = SparkJob(**json.loads(sys.argv[1]))
    warm_up()
    print("ready", flush=True)
    sys.stdin.readline()
    asyncio.run(feed(job, sys.argv[2]))
    print(peak_mb(os.getpid()), flush=True)


if __name__ == "__main__":
    main()
