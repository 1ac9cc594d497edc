"""Counts clicks on many hosts, which share the shards by leases in ZooKeeper. It runs until Ctrl-C."""

import asyncio

from consumer_sdk import Consumer, Message, RetryPolicy
from consumer_sdk.adapters import KinesisAdapter
from consumer_sdk.stores import ZooKeeperStore


async def handle(message: Message) -> None:
    """One user record."""
    print(message.position, message.value)


consumer = Consumer(
    KinesisAdapter(
        "clicks",
        group="billing",
        region_name="eu-central-1",
        dead_letter_stream="clicks-dead",
    ),
    store=ZooKeeperStore("zk1:2181,zk2:2181", root="/consumer-sdk"),
    retry=RetryPolicy(max_attempts=5),
)
if __name__ == "__main__":
    asyncio.run(consumer.run(handle, concurrency=500))
