"""A bare aiokafka loop that hands each record to a handler, and commits each 100 ms by itself."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import uuid

from aiokafka import AIOKafkaConsumer

from benchmarks.latency_feed import Feed, Latencies


async def measure(feed: Feed) -> dict[str, float]:
    """The percentiles of a feed."""
    consumer = AIOKafkaConsumer(
        feed.topic,
        bootstrap_servers=feed.servers,
        group_id=f"benchmark-{uuid.uuid4().hex}",
        auto_offset_reset="latest",
        auto_commit_interval_ms=100,
    )
    latencies = Latencies(feed)
    async with consumer:
        while len(consumer.assignment()) < feed.partitions:  # noqa: ASYNC110 - nobody tells
            await asyncio.sleep(0.05)
        await consumer.seek_to_end()
        reading = asyncio.create_task(_read(consumer, latencies))
        found = await latencies.filled()
        reading.cancel()
    return found


async def _read(consumer: AIOKafkaConsumer, latencies: Latencies) -> None:
    async def handle(value: bytes | None) -> None:
        latencies.note(value)

    while True:
        found = await consumer.getmany(timeout_ms=1000, max_records=500)
        for records in found.values():
            for record in records:
                await handle(record.value)


if __name__ == "__main__":
    print(json.dumps(asyncio.run(measure(Feed(**json.loads(sys.argv[1]))))), flush=True)
    os._exit(0)
