"""How soon a record of a busy shard is handled, beside shards that have nothing."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field

from consumer_sdk import Consumer, Message
from consumer_sdk.adapters.kinesis import KinesisAdapter
from consumer_sdk.stores import MemoryStore
from consumer_sdk.testing.servers import KinesisEndpoint

__all__ = ["SHARDS", "Latencies", "busy_shard"]

SHARDS = 25
EVERY = 0.05
"""Seconds between two records of the busy shard; faster than that shard may be asked."""

PATIENCE = 60.0


@dataclass(slots=True)
class Latencies:
    """Seconds from the call that puts a record to the handler that gets it.

    Attributes:
        times: of each record.
    """

    times: list[float] = field(default_factory=list)

    def percentile(self, percent: float) -> float:
        """What so many of a hundred are below or at."""
        at = round(percent / 100 * (len(self.times) - 1))
        return sorted(self.times)[at]


async def busy_shard(server: KinesisEndpoint, stream: str, records: int) -> Latencies:
    """Puts records into one of many shards, while a consumer with default options reads all."""
    await server.create_stream(stream, SHARDS)
    found, arrived = Latencies(), asyncio.Event()

    async def handle(message: Message) -> None:
        found.times.append(time.perf_counter() - float(message.value or b""))
        arrived.set()

    consumer = make_consumer(server.endpoint_url, stream)
    running = asyncio.create_task(consumer.run(handle))
    try:
        async with asyncio.timeout(PATIENCE + records * EVERY):
            await _put(server, stream)
            await arrived.wait()  # all shards are being read by now, or about to be
            await asyncio.sleep(1.0)
            found.times.clear()
            await _put_all(server, stream, records)
            while len(found.times) < records:
                arrived.clear()
                await arrived.wait()
    finally:
        consumer.stop()
        await running
    return found


def make_consumer(url: str, stream: str) -> Consumer:
    """A member of a group with all of the adapter's defaults."""
    adapter = KinesisAdapter(
        stream,
        group="benchmark",
        region_name="us-east-1",
        endpoint_url=url,
        aws_access_key_id="any",
        aws_secret_access_key="any",  # noqa: S106 - the server takes what it gets
    )
    return Consumer(adapter, store=MemoryStore(), start="earliest")


async def _put_all(server: KinesisEndpoint, stream: str, records: int) -> None:
    """One by one, at the same pace whatever a put takes."""
    loop = asyncio.get_running_loop()
    began = loop.time()
    for number in range(records):
        await asyncio.sleep(began + number * EVERY - loop.time())
        await _put(server, stream)


async def _put(server: KinesisEndpoint, stream: str) -> None:
    await server.put(stream, [("busy", repr(time.perf_counter()).encode())])
