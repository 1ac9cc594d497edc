"""A consumer of Kafka with its checkpoints in ZooKeeper, in a process of its own, to be killed.

``python -m tests.stores.kafka_child SERVERS TOPIC GROUP ZOOKEEPER FILE``: the file says what was
processed.
"""

from __future__ import annotations

import asyncio
import os
import random
import sys

from consumer_sdk import Consumer, Message
from consumer_sdk.adapters import KafkaAdapter
from consumer_sdk.stores import ZooKeeperStore
from tests.stores.zookeeper_load import SESSION_TIMEOUT


async def main(servers: str, topic: str, group: str, hosts: str, file: str) -> None:
    """Processes until it is killed."""
    out = os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    chance = random.Random(os.getpid())

    async def see(message: Message) -> None:
        await asyncio.sleep(chance.random() * 0.005)
        os.write(out, f"{message.partition.id} {message.position}\n".encode())

    consumer = Consumer(
        KafkaAdapter(topic, bootstrap_servers=servers, group=group, session_timeout=30.0),
        store=ZooKeeperStore(hosts, session_timeout=SESSION_TIMEOUT),
        flush_interval=0.05,
    )
    await consumer.run(see, concurrency=32)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
