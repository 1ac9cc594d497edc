"""Ours: ``run()`` in KEY order, with the group's commits alone or with a `LocalStore`."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import tempfile
import uuid
from pathlib import Path

from benchmarks.latency_feed import Feed, Latencies
from benchmarks.ours.memory_partitions import all_held
from consumer_sdk import Consumer, Message, Ordering
from consumer_sdk.adapters import KafkaAdapter
from consumer_sdk.stores import LocalStore


async def measure(feed: Feed, folder: Path) -> dict[str, float]:
    """The percentiles of a feed."""
    group = f"benchmark-{uuid.uuid4().hex}"
    adapter = KafkaAdapter(feed.topic, bootstrap_servers=feed.servers, group=group)
    store = LocalStore(folder / "state.db") if feed.with_store else None
    latencies = Latencies(feed)

    async def handle(message: Message) -> None:
        latencies.note(message.value)

    async with Consumer(adapter, store=store, start="latest") as consumer:
        await all_held(consumer, feed.partitions)
        running = asyncio.create_task(
            consumer.run(handle, concurrency=100, ordering=Ordering.KEY, handle_signals=False)
        )
        found = await latencies.filled()
        consumer.stop()
        await running
    return found


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as place:
        print(
            json.dumps(asyncio.run(measure(Feed(**json.loads(sys.argv[1])), Path(place)))),
            flush=True,
        )
    os._exit(0)
