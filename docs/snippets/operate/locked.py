"""Cannot write its store for a while, because another program has locked the file."""

import asyncio
import logging
import sqlite3
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from consumer_sdk import Consumer, Message
from consumer_sdk.stores import LocalStore
from consumer_sdk.testing.memory import MemoryAdapter, MemoryBroker

logging.basicConfig(stream=sys.stdout, level=logging.WARNING, format="%(levelname)s %(message)s")
broker = MemoryBroker()
broker.create_stream("orders")
FILE = Path(tempfile.mkdtemp()) / "state.db"
store = LocalStore(FILE, busy_timeout=0.1)
consumer = Consumer(MemoryAdapter(broker, "orders", group="billing"), store=store)


async def handle(message: Message) -> None:
    """Handlers go on while the store is away."""
    print("charged", message.value, flush=True)


async def until(happened: Callable[[], object]) -> None:
    """Looks a hundred times a second."""
    while not happened():  # noqa: ASYNC110  a consumer has no event for it
        await asyncio.sleep(0.01)


async def main() -> None:
    """Locks the file once the consumer has opened it, and later lets go."""
    running = asyncio.create_task(consumer.run(handle))
    await until(consumer.explain)
    other = sqlite3.connect(FILE, isolation_level=None)
    other.execute("BEGIN EXCLUSIVE")
    broker.append("orders", b"order 0")
    await until(lambda: consumer.snapshot().flushes.get("retry"))
    other.execute("ROLLBACK")
    consumer.stop()
    await running
    print("checkpoint:", other.execute("SELECT text FROM checkpoints").fetchone()[0])
    other.close()


asyncio.run(main())
