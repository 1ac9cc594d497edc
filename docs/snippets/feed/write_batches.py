"""Writes batches into a feed, in both ways. The broker is in memory, and has two streams of orders."""

import asyncio
import sys

from consumer_sdk import Consumer
from consumer_sdk.spark_bridge import SparkFeed
from consumer_sdk.testing.memory import MemoryAdapter, MemoryBroker

FEED = sys.argv[1] if len(sys.argv) > 1 else "/data/landing/orders"
broker = MemoryBroker()


def consumer_of(stream: str) -> Consumer:
    """A consumer of a stream with five orders."""
    broker.create_stream(stream)
    broker.append_all(stream, [(b"ann", b"order %d" % number) for number in range(5)])
    return Consumer(MemoryAdapter(broker, stream, group="landing"))


# -- the two ways
async def handed(consumer: Consumer, feed: SparkFeed) -> None:
    """A handler of batches."""
    await consumer.run(feed.put_many, batch_size=2_000, concurrency=4)


async def pulled(consumer: Consumer, feed: SparkFeed) -> None:
    """A loop over batches."""
    async with consumer:
        async for batch in consumer.batches():
            await feed.put_many(batch)  # returns when the records are durable
            batch.ack()


# -- the rest
async def main() -> None:
    """Until all are settled."""
    async with SparkFeed(FEED) as feed:
        for stream, write in (("web", handed), ("shop", pulled)):
            consumer = consumer_of(stream)
            writing = asyncio.create_task(write(consumer, feed))
            while consumer.stats().settled < 5:  # noqa: ASYNC110  a consumer has no event for it
                await asyncio.sleep(0.01)
            consumer.stop()
            await writing
            print(stream, "settled", consumer.stats().settled)


asyncio.run(main())
