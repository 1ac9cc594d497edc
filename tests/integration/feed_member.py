"""A member of a group of Kafka that feeds Spark, in a process of its own, to be stopped and killed.

``python -m tests.integration.feed_member SERVERS TOPIC DIRECTORY``
"""

from __future__ import annotations

import asyncio
import sys

from consumer_sdk import Consumer
from consumer_sdk.adapters import KafkaAdapter
from consumer_sdk.spark_bridge import SparkFeed


async def main(servers: str, topic: str, directory: str) -> None:
    """Feeds until it is killed or stopped."""
    adapter = KafkaAdapter(topic, bootstrap_servers=servers, group=topic, session_timeout=1.5)
    consumer = Consumer(adapter, start="earliest", flush_interval=0.05)
    async with SparkFeed(directory, max_rows=50, max_wait=0.02) as feed:
        await consumer.run(feed.put_many, batch_size=50, batch_wait=0.02, concurrency=8)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
