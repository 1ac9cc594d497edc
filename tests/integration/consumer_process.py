"""A consumer in a process of its own, to be killed: says what it processed in a file."""

from __future__ import annotations

import asyncio
import os
import random
import sys

from consumer_sdk import Consumer, Message, Ordering
from consumer_sdk.stores import LocalStore


async def main(url: str, store: str, processed: str, *stuck: str) -> None:
    """Processes until it is killed or stopped.

    Args:
        url: of an adapter.
        store: its file; "" for none.
        stuck: positions of records that are never done.
    """
    out = os.open(processed, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    chance = random.Random(os.getpid())

    async def handle(message: Message) -> None:
        await asyncio.sleep(3600 if str(message.position) in stuck else chance.random() * 0.005)
        os.write(out, f"{message.partition.id} {message.position}\n".encode())

    consumer = Consumer(url, store=LocalStore(store) if store else None, flush_interval=0.05)
    await consumer.run(handle, concurrency=32, ordering=Ordering.KEY)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
