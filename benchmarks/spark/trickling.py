"""A few rows a second, evenly, into every partition of a topic in turn."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from aiokafka import AIOKafkaProducer

from benchmarks.kafka_topic import PARTITIONS

__all__ = ["PER_SECOND", "trickling"]

PER_SECOND = 200
_VALUE = b"v" * 100


@asynccontextmanager
async def trickling(servers: str, topic: str) -> AsyncIterator[None]:
    """`PER_SECOND` rows a second while it is open."""
    async with AIOKafkaProducer(bootstrap_servers=servers) as producer:
        task = asyncio.create_task(_send(producer, topic))
        try:
            yield
        finally:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task


async def _send(producer: AIOKafkaProducer, topic: str) -> None:
    loop = asyncio.get_running_loop()
    began = loop.time()
    for number in itertools.count():
        # At a pace of its own: a late row does not delay those after it.
        await asyncio.sleep(began + number / PER_SECOND - loop.time())
        key = b"key-%05d" % number
        await producer.send(topic, _VALUE, key=key, partition=number % PARTITIONS)
