"""Prints what holds each partition back. The broker is in memory, and one of its records hangs."""

import asyncio

from consumer_sdk import Consumer, Message
from consumer_sdk.testing.memory import MemoryAdapter, MemoryBroker

broker = MemoryBroker()
broker.create_stream("orders", 2)
for number, value in enumerate((b"hangs", b"good", b"good")):
    broker.append("orders", value, key=b"%d" % number, partition=0)


async def handle(message: Message) -> None:
    """The handler of the first record does not return."""
    if message.value == b"hangs":
        await asyncio.sleep(3600)


async def main() -> None:
    """Looks once the other records are settled."""
    adapter = MemoryAdapter(broker, "orders", group="billing")
    consumer = Consumer(adapter, drain_timeout=0.1)
    running = asyncio.create_task(consumer.run(handle))
    while consumer.stats().settled < 2:  # noqa: ASYNC110  a consumer has no event for it
        await asyncio.sleep(0.01)
    # -- what to print
    for partition, found in consumer.explain().items():
        print(partition, found)
    # -- the rest
    consumer.stop()
    await running


asyncio.run(main())
