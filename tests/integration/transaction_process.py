"""A consumer with transactions in a process of its own, to be killed or stopped: two outputs for each record."""

from __future__ import annotations

import asyncio
import os
import random
import sys

from consumer_sdk import Consumer, Message, RetryPolicy
from consumer_sdk.adapters import KafkaTransactions

__all__ = ["marks"]


def marks(partition: int | str, position: int) -> list[str]:
    """The outputs of a record."""
    return [f"{partition}:{position}:{n}" for n in range(2)]


async def main(url: str, target: str, transactional_id: str, timeout: str) -> None:
    """Echoes until it is killed or stopped; some deliveries fail after they have sent something.

    Args:
        url: of an adapter.
        target: a topic.
        timeout: seconds of a transaction.
    """
    chance = random.Random(os.getpid())

    async def handle(message: Message) -> None:
        first, second = marks(message.partition.id, message.position)
        message.send(target, first.encode(), key=message.key)
        await asyncio.sleep(chance.random() * 0.005)
        if chance.random() < 0.02:
            raise ValueError("again")
        message.send(target, second.encode(), key=second.encode())

    retry = RetryPolicy(max_attempts=None, initial=0.01)
    consumer = Consumer(url, retry=retry, flush_interval=0.02)
    transactions = KafkaTransactions(transactional_id, timeout=float(timeout))
    await consumer.run(handle, concurrency=32, transactions=transactions)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
