"""A consumer of Kafka that feeds a directory, in a process of its own, to be killed.

``python -m tests.integration.spark_kills.feed_consumer SERVERS TOPIC GROUP DIRECTORY``
"""

from __future__ import annotations

import asyncio
import sys

from consumer_sdk import Consumer
from consumer_sdk.adapters import KafkaAdapter
from consumer_sdk.spark_bridge import SparkFeed

KEEP_SECONDS = 10.0
"""So that segments are deleted while the test runs."""


async def main(servers: str, topic: str, group: str, directory: str) -> None:
    """Feeds until it is killed."""
    adapter = KafkaAdapter(topic, bootstrap_servers=servers, group=group, session_timeout=2.0)
    consumer = Consumer(adapter, flush_interval=0.05)
    async with SparkFeed(directory, max_rows=100, max_wait=0.05, keep_for=KEEP_SECONDS) as feed:
        await consumer.run(feed.put, concurrency=500)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
