"""A member of a share group in a process of its own, to be killed or stopped: says what it has begun and done.

``python -m tests.integration.share_consumer URL FILE``: each line of the file has ``+`` for a record that a handler
gets, or ``-`` for one that it has done, the partition, the position and the attempt.
"""

from __future__ import annotations

import asyncio
import os
import random
import sys

from consumer_sdk import Consumer, Message, Ordering


async def main(url: str, file: str) -> None:
    """Processes until it is killed."""
    out = os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    chance = random.Random(os.getpid())

    async def handle(message: Message) -> None:
        place = f"{message.partition.id} {message.position} {message.attempt}"
        os.write(out, f"+ {place}\n".encode())
        await asyncio.sleep(chance.random() * 0.005)
        os.write(out, f"- {place}\n".encode())

    consumer = Consumer(url, flush_interval=0.05)
    await consumer.run(handle, concurrency=32, ordering=Ordering.NONE)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
