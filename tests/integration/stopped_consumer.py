"""A consumer of Kafka in a process of its own, to be stopped: says what it has started.

``python -m tests.integration.stopped_consumer URL FILE [STORE]``: each line of the file has the epoch, the
partition and the position of a delivery.
"""

from __future__ import annotations

import asyncio
import os
import sys

from consumer_sdk import Consumer, Message, Ordering
from consumer_sdk.stores import LocalStore

SESSION = 1.5


async def main(url: str, file: str, store: str = "") -> None:
    """Processes until it is killed."""
    out = os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    async def see(message: Message) -> None:
        place = f"{message.assignment.epoch} {message.partition.id} {message.position}"
        os.write(out, f"{place}\n".encode())
        await asyncio.sleep(0.02)

    consumer = Consumer(
        url,
        store=LocalStore(store) if store else None,
        flush_interval=0.05,
    )
    await consumer.run(see, concurrency=8, ordering=Ordering.NONE)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
