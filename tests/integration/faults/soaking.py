"""A consumer in a process of its own that samples itself, for hours: memory, descriptors, tasks, latency.

``python -m tests.integration.faults.soaking FILE URL [STORE [unused]]``
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import random
import resource
import statistics
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path

from consumer_sdk import Consumer, Message, Ordering
from tests.integration.faults.member import RETRY, store_at

__all__ = ["EVERY", "Sample"]

CONCURRENCY = 512
EVERY = 10.0
"""Seconds between samples."""
FAILING = 200
"""Of so many records one fails at its first attempt."""


@dataclass(frozen=True, slots=True)
class Sample:
    """What one process was like.

    Attributes:
        at: the time.
        done: different records that were handled so far.
        again: times that one was handled again.
        memory: resident bytes.
        files: open descriptors.
        tasks: of asyncio.
        seconds: of a processor, so far.
        half, most: seconds from a record's production to its handler's start, of the samples' records: half of them, and
            99 of 100, took no longer.
    """

    at: float
    done: int
    again: int
    memory: int
    files: int
    tasks: int
    seconds: float
    half: float
    most: float


class Soak:
    """What was handled.

    Args:
        file: for the samples.
    """

    def __init__(self, file: Path) -> None:
        self._file = file
        self._seen = bytearray()
        self._done = self._again = 0
        self._latencies: list[float] = []
        self._chance = random.Random(18)

    async def handle(self, message: Message) -> None:
        """Waits, and fails now and then."""
        number, produced = (message.value or b"").split()[:2]
        self._latencies.append(time.time() - float(produced))
        await asyncio.sleep(self._chance.random() * 0.02)
        if int(number) % FAILING == 7 and message.attempt == 1:
            raise ValueError("this record fails once")
        self._note(int(number))

    def _note(self, number: int) -> None:
        if number >= len(self._seen):
            self._seen.extend(bytes(number + 1_000_000 - len(self._seen)))
        self._again += self._seen[number]
        self._done += not self._seen[number]
        self._seen[number] = 1

    async def sample(self) -> None:
        """Writes a line now and then, until it is cancelled."""
        while True:
            await asyncio.sleep(EVERY)
            taken, self._latencies = sorted(self._latencies), []
            used = resource.getrusage(resource.RUSAGE_SELF)
            pages = int(Path("/proc/self/statm").read_text().split()[1])  # noqa: ASYNC240 - no disk
            sample = Sample(
                at=time.time(),
                done=self._done,
                again=self._again,
                memory=pages * resource.getpagesize() - len(self._seen),
                files=len(os.listdir("/proc/self/fd")),  # noqa: PTH208 - numbers
                tasks=len(asyncio.all_tasks()),
                seconds=used.ru_utime + used.ru_stime,
                half=statistics.median(taken) if taken else 0.0,
                most=taken[len(taken) * 99 // 100] if taken else 0.0,
            )
            with self._file.open("a") as out:
                out.write(f"{json.dumps(asdict(sample))}\n")


async def main(file: str, url: str, store: str = "", _clock: str = "") -> None:
    """Consumes until it is stopped."""
    soak = Soak(Path(f"{file}.samples"))
    sampling = asyncio.create_task(soak.sample())
    consumer = Consumer(url, store=store_at(store) if store else None, retry=RETRY)
    ordering = Ordering.NONE if "type=shared" in url else Ordering.KEY
    await consumer.run(soak.handle, concurrency=CONCURRENCY, ordering=ordering)
    sampling.cancel()


if __name__ == "__main__":
    logging.basicConfig(level=logging.WARNING)
    logging.getLogger("consumer_sdk").setLevel(logging.CRITICAL)  # each failed attempt is a line
    asyncio.run(main(*sys.argv[1:]))
