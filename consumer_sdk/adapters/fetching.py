"""What adapters that read ahead share: how a fetch waits, and takes from each partition in turn."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from consumer_sdk.records import Run

__all__ = ["Turns", "fetch"]

T = TypeVar("T")


class Turns:
    """Whose turn it is to come first."""

    def __init__(self) -> None:
        self._turn = 0

    def take(
        self,
        ready: Sequence[T],
        take: Callable[[T, int, int], Run | None],
        max_records: int,
        max_bytes: int,
    ) -> list[Run]:
        """The next runs, within limits of records and (soft) bytes.

        Args:
            ready: partitions of which something may be taken.
            take: what is next of one, within limits; one record at least, if there is one.
        """
        if ready:
            self._turn = (self._turn + 1) % len(ready)
        runs: list[Run] = []
        for partition in (*ready[self._turn :], *ready[: self._turn]):
            if max_records <= 0 or max_bytes <= 0:
                break
            run = take(partition, max_records, max_bytes)
            if run is not None:
                runs.append(run)
                max_records -= len(run.messages)
                max_bytes -= run.size
        return runs


async def fetch(
    collect: Callable[[], Awaitable[list[Run]]], news: asyncio.Event, max_wait: float
) -> list[Run]:
    """What ``collect`` has, waiting up to ``max_wait`` seconds for some.

    Args:
        news: set whenever there may be something.

    Cancellation: loses nothing if that of ``collect`` does not.
    """
    loop = asyncio.get_running_loop()
    until = loop.time() + max_wait
    while True:
        # Cleared first: news that come while something is collected are not slept through.
        news.clear()
        runs = await collect()
        if runs or loop.time() >= until:
            return runs
        timer = loop.call_at(until, news.set)
        try:
            await news.wait()
        finally:
            timer.cancel()
