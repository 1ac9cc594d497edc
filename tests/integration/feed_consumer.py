"""A consumer that feeds Spark, in a process of its own, to be killed.

``python -m tests.integration.feed_consumer BROKER DIRECTORY STORE OPTIONS``: OPTIONS are those of
the broker's adapter, as JSON, with ``stream`` for what it reads; STORE is a file, or "".
"""

from __future__ import annotations

import asyncio
import json
import random
import sys
from typing import Any

from consumer_sdk import Consumer, Message, Ordering
from consumer_sdk.abc import Adapter
from consumer_sdk.adapters import KafkaAdapter, KinesisAdapter, PulsarAdapter
from consumer_sdk.spark_bridge import SparkFeed
from consumer_sdk.stores import LocalStore

__all__ = ["ADAPTERS"]

ADAPTERS: dict[str, type[Any]] = {
    "kafka": KafkaAdapter,
    "kinesis": KinesisAdapter,
    "pulsar": PulsarAdapter,
}


async def main(broker: str, directory: str, store: str, options: str) -> None:
    """Feeds until it is killed or stopped."""
    given = json.loads(options)
    adapter: Adapter = ADAPTERS[broker](given.pop("stream"), **given)
    chance = random.Random()
    feed = SparkFeed(directory, max_wait=0.01, max_rows=50, encode_position=adapter.encode_position)
    async with feed:

        async def handle(message: Message) -> None:
            await asyncio.sleep(chance.random() * 0.01)
            if message.attempt == 1 and chance.random() < 0.02:
                raise RuntimeError("delivered again")  # on Pulsar by the broker, else by the SDK
            await feed.put(message)

        kept = LocalStore(store) if store else None
        consumer = Consumer(adapter, store=kept, flush_interval=0.05)
        await consumer.run(handle, concurrency=64, ordering=Ordering.NONE)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
