"""Stores each line of a record by itself. The record is settled when all of its lines are stored."""

import asyncio

from consumer_sdk import Branch, Consumer, Message
from consumer_sdk.testing.memory import MemoryAdapter, MemoryBroker

broker = MemoryBroker()
broker.create_stream("texts")
broker.append("texts", b"one\ntwo\nthree")
queue: asyncio.Queue[tuple[bytes, Branch]] = asyncio.Queue()


# -- the handler, and what works on the branches
async def handle(message: Message) -> None:
    """Makes a branch for each line."""
    with message.tree() as tree:  # leaving the block acks the tree's first branch
        for line in (message.value or b"").splitlines():
            queue.put_nowait((line, tree.branch()))


async def work() -> None:
    """Takes branches, from whichever record."""
    while True:
        line, branch = await queue.get()
        with branch:  # acks; an exception fails the record, and propagates
            await store(line)


# -- the rest
async def store(line: bytes) -> None:
    """Stands for a database."""
    print("stored", line)


async def main() -> None:
    """Until nothing is unsettled."""
    consumer = Consumer(MemoryAdapter(broker, "texts", group="g"))
    working = asyncio.create_task(work())
    running = asyncio.create_task(consumer.run(handle))
    while not consumer.stats().settled:  # noqa: ASYNC110  a consumer has no event for it
        await asyncio.sleep(0.01)
    consumer.stop()
    await running
    working.cancel()
    print("settled", consumer.stats().settled)


asyncio.run(main())
