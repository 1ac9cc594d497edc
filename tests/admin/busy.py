"""A consumer with everything that a page shows: ``python -m tests.admin.busy [ADDRESS]``.

Partition 1 has a record whose handler hangs, so that its position is pinned; some records of each
partition fail, and a few are dead-lettered.
"""

from __future__ import annotations

import asyncio
import random
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from consumer_sdk import Consumer, Message, Reject, RetryPolicy, admin
from consumer_sdk.testing import MemoryAdapter, MemoryBroker

STUCK = "1"
KEY = b"<b>customer-7</b>"
"""The key of the record that hangs: a page that took it for HTML would show it bold."""


async def handle(message: Message) -> None:
    """Works, fails, rejects or hangs, as the value says."""
    value = message.value or b""
    if value == b"hang":
        await asyncio.Event().wait()
    await asyncio.sleep(float(value.partition(b" ")[2] or b"0.01"))
    if value.startswith(b"fail"):
        raise TimeoutError("the bank does not answer")
    if value.startswith(b"bad"):
        raise Reject("no such account")


def _value(chance: random.Random) -> bytes:
    kind = chance.choices(["work", "fail", "bad"], [95, 4, 1])[0]
    return f"{kind} {chance.uniform(0.002, 0.3) ** 2:.3f}".encode()


@asynccontextmanager
async def busy(
    partitions: int = 6, each_second: int = 120, group: str = "billing"
) -> AsyncIterator[Consumer]:
    """It runs, and records keep coming, until the end of the block."""
    broker = MemoryBroker()
    broker.create_stream("orders", partitions)
    consumer = Consumer(
        MemoryAdapter(broker, "orders", group=group),
        retry=RetryPolicy(max_attempts=3, initial=2.0),
        drain_timeout=0.1,
    )
    running = asyncio.create_task(consumer.run(handle, concurrency=50, handle_signals=False))
    producing = asyncio.create_task(_produce(broker, partitions, each_second))
    try:
        yield consumer
    finally:
        producing.cancel()
        consumer.stop()
        await running


async def _produce(broker: MemoryBroker, partitions: int, each_second: int) -> None:
    chance = random.Random(7)
    broker.append("orders", b"hang", key=KEY, partition=int(STUCK))
    while True:
        for _ in range(each_second // 10):
            key = f"customer-{chance.randrange(1000)}".encode()
            partition = chance.randrange(partitions)
            broker.append("orders", _value(chance), key=key, partition=partition)
        await asyncio.sleep(0.1)


async def main(address: str | None) -> None:
    """Until Ctrl-C."""
    async with (
        busy() as consumer,
        admin.serve(consumer, address=address, actions=True) as server,
    ):
        sys.stdout.write(f"{server.address}\n")
        sys.stdout.flush()
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else None))
