"""Records that carry the time at which they were sent, at a steady rate, and who reads that.

The clock is the system's monotonic one, which all processes of a machine share.
"""

from __future__ import annotations

import asyncio
import json
import struct
import sys
import time
from array import array
from dataclasses import asdict, dataclass
from statistics import quantiles

from aiokafka import AIOKafkaProducer

from benchmarks.process import ROOT

__all__ = ["Feed", "Latencies", "sent_at"]

TICK = 0.002
SIZE = 100
_TIME = struct.Struct("d")


@dataclass(frozen=True, slots=True, kw_only=True)
class Feed:
    """What is sent.

    Attributes:
        rate: records a second.
        seconds: for how long.
        warmup: seconds at the beginning that are not measured.
        with_store: ours keeps its checkpoints in a `LocalStore`.
    """

    servers: str
    topic: str
    partitions: int
    rate: int
    seconds: float
    warmup: float
    with_store: bool = False

    async def send_all(self) -> None:
        """A batch in each tick, to each partition in its turn."""
        count, tick = 0, 0
        producer = AIOKafkaProducer(bootstrap_servers=self.servers)
        async with producer:
            began = time.monotonic()
            while (passed := time.monotonic() - began) < self.seconds:
                due = int(passed * self.rate)
                if due > count:
                    await self._send(producer, due - count, tick % self.partitions)
                    count, tick = due, tick + 1
                await asyncio.sleep(TICK)
            await producer.flush()

    async def _send(self, producer: AIOKafkaProducer, count: int, partition: int) -> None:
        batch = producer.create_batch()
        for number in range(count):
            value = _TIME.pack(time.monotonic()).ljust(SIZE, b"v")
            batch.append(key=b"key-%d" % (number % 500), value=value, timestamp=None)
        batch.close()
        await producer.send_batch(batch, self.topic, partition=partition)

    async def start(self) -> asyncio.subprocess.Process:
        """Sends from a process of its own."""
        arguments = ("-m", "benchmarks.latency_feed", json.dumps(asdict(self)))
        return await asyncio.create_subprocess_exec(sys.executable, *arguments, cwd=ROOT)


def sent_at(value: bytes | None) -> float:
    """When a record was sent, by the clock of `time.monotonic`."""
    return float(_TIME.unpack_from(value or b"")[0])


class Latencies:
    """How long each record was on its way, after the warm-up."""

    def __init__(self, feed: Feed) -> None:
        self._seconds = array("d")
        self._from = time.monotonic() + feed.warmup
        self._feed = feed

    def note(self, value: bytes | None) -> None:
        """A record is with its handler."""
        now = time.monotonic()
        if now >= self._from:
            self._seconds.append(now - sent_at(value))

    async def filled(self) -> dict[str, float]:
        """Feeds the topic, and waits for its end; the percentiles in milliseconds."""
        process = await self._feed.start()
        self._from = time.monotonic() + self._feed.warmup
        await process.wait()
        await asyncio.sleep(0.5)
        cuts = quantiles(self._seconds, n=100)
        return {"count": len(self._seconds), "p50_ms": cuts[49] * 1e3, "p99_ms": cuts[98] * 1e3}


if __name__ == "__main__":
    asyncio.run(Feed(**json.loads(sys.argv[1])).send_all())
