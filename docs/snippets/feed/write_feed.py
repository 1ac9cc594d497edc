"""Writes the records of a stream into a feed. The broker is in memory, and has five orders."""

import asyncio
import sys

from consumer_sdk import Consumer
from consumer_sdk.spark_bridge import SparkFeed
from consumer_sdk.testing.memory import MemoryAdapter, MemoryBroker

FEED = sys.argv[1] if len(sys.argv) > 1 else "/data/landing/orders"
broker = MemoryBroker()
broker.create_stream("orders")
broker.append_all("orders", [(b"ann", b"order %d" % number) for number in range(5)])


async def main() -> None:
    """Until all five are durable in the feed."""
    adapter = MemoryAdapter(broker, "orders", group="landing")
    consumer = Consumer(adapter)
    stopping = asyncio.create_task(stop_at(consumer, 5))
    # -- the feed
    async with SparkFeed(
        FEED, max_backlog_bytes=2 * 2**30, encode_position=adapter.encode_position
    ) as feed:
        await consumer.run(feed.put, concurrency=500)
    # -- the rest
    await stopping
    print("settled", consumer.stats().settled)


async def stop_at(consumer: Consumer, count: int) -> None:
    """For this program only; a service runs until SIGTERM."""
    while consumer.stats().settled < count:  # noqa: ASYNC110  a consumer has no event for it
        await asyncio.sleep(0.01)
    consumer.stop()


asyncio.run(main())
