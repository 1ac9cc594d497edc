"""What adapters that read ahead share: how a fetch waits, and takes from each partition in turn."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Protocol

from consumer_sdk.records import Run

__all__ = ["Ready", "Turns", "fetch"]


class Ready(Protocol):
    """A partition of which something may be fetched."""

    @property
    def has_run(self) -> bool:
        """`take` has something."""
        ...

    def take(self, max_records: int, max_bytes: int) -> Run:
        """The next run; at least one record, if there is one."""
        ...


class Turns:
    """Whose turn it is to come first."""

    def __init__(self) -> None:
        self._turn = 0

    def take(self, partitions: Iterable[Ready], max_records: int, max_bytes: int) -> list[Run]:
        """The next runs of those that are ready, within limits of records and (soft) bytes."""
        ready = [partition for partition in partitions if partition.has_run]
        if not ready:
            return []
        self._turn = (self._turn + 1) % len(ready)
        runs: list[Run] = []
        for partition in ready[self._turn :] + ready[: self._turn]:
            if max_records <= 0 or max_bytes <= 0:
                break
            run = partition.take(max_records, max_bytes)
            runs.append(run)
            max_records -= len(run.messages)
            max_bytes -= run.size
        return runs


async def fetch(
    collect: Callable[[], list[Run]], news: asyncio.Event, max_wait: float
) -> list[Run]:
    """What ``collect`` has, waiting up to ``max_wait`` seconds for some.

    Args:
        news: set whenever there may be something.

    Cancellation: nothing was collected that does not come out.
    """
    loop = asyncio.get_running_loop()
    until = loop.time() + max_wait
    while True:
        news.clear()
        runs = collect()
        if runs or loop.time() >= until:
            return runs
        timer = loop.call_at(until, news.set)
        try:
            await news.wait()
        finally:
            timer.cancel()
