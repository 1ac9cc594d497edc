"""A consumer in a process of its own, which a campaign kills, stops and cuts off.

``python -m tests.integration.faults.member FILE URL [STORE [CLOCK]]``
"""

from __future__ import annotations

import asyncio
import logging
import os
import random
import sys
import time
from pathlib import Path

from consumer_sdk import Consumer, Message, Ordering, RetryPolicy
from consumer_sdk.abc import CheckpointStore
from consumer_sdk.stores import ZooKeeperStore, store_from_url
from tests.integration.faults.ledger import Line

__all__ = ["CONCURRENCY", "SESSION", "fails"]

CONCURRENCY = 32
SESSION = 5.0
"""Seconds of a session or a lease; longer than a busy machine stands still."""
RETRY = RetryPolicy(max_attempts=8, initial=0.05, maximum=0.2)


def fails(number: int, attempt: int) -> bool:
    """Some records take three attempts."""
    return number % 41 == 7 and attempt < 3


def numbers_of(position: object) -> tuple[int, ...]:
    """A position of any broker."""
    if isinstance(position, tuple):
        return tuple(int(each) for each in position if isinstance(each, int))
    return (int(position),)  # type: ignore[call-overload]


def store_at(url: str) -> CheckpointStore:
    """With a short session where it has one."""
    scheme, _, hosts = url.partition("://")
    if scheme == "zookeeper":
        return ZooKeeperStore(hosts, session_timeout=SESSION)
    return store_from_url(url)


class WrongClock:
    """The wall clock is wrong by as many seconds as a file says.

    Args:
        file: it may be written at any time.
    """

    def __init__(self, file: str) -> None:
        self._file = Path(file)

    def monotonic(self) -> float:
        """The event loop's."""
        return asyncio.get_running_loop().time()

    def wall(self) -> float:
        """Seconds since the epoch, and what the file says."""
        return time.time() + float(self._file.read_text())


async def main(file: str, url: str, store: str = "", clock: str = "") -> None:
    """Consumes until it is stopped, or killed."""
    out = os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    chance, life = random.Random(os.getpid()), os.getpid()

    async def handle(message: Message) -> None:
        await asyncio.sleep(chance.random() * 0.05)
        number = int((message.value or b"").split()[0])
        is_done = not fails(number, message.attempt)
        key = (message.key or b"-").decode()
        place = numbers_of(message.position)
        line = Line(life, message.partition.id, key, number, place, message.attempt, is_done)
        os.write(out, f"{line}\n".encode())
        if not is_done:
            raise ValueError(f"number {number} fails at attempt {message.attempt}")

    consumer = Consumer(
        url,
        store=store_at(store) if store else None,
        retry=RETRY,
        flush_interval=0.05,
        clock=WrongClock(clock) if clock else None,
    )
    ordering = Ordering.NONE if "type=shared" in url else Ordering.KEY
    await consumer.run(handle, concurrency=CONCURRENCY, ordering=ordering)


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(levelname)s %(message)s")
    asyncio.run(main(*sys.argv[1:]))
