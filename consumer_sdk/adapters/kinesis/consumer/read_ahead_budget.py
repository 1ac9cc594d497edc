"""How much may be read ahead, by all shards of one consumer together."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Collection

from consumer_sdk.adapters.kinesis.consumer.grants import Grant

__all__ = ["ReadAheadBudget"]

MOST_SHARDS = 16_384
"""That may wait at their tips, all at once, each with a small part reserved."""


class ReadAheadBudget:
    """Bytes that were read and not fetched, and those that are on their way.

    A shard reserves what it expects before it asks, so that not all of them ask at once where there
    is room for one; those that wait come in their order. Every fetch wakes as many as fit.

    Args:
        grants: the shards that are held, as they are at any time.
        limit: bytes. It is soft by what an answer brings above what was expected of it.
    """

    def __init__(self, grants: Callable[[], Collection[Grant]], limit: int) -> None:
        self._grants = grants
        self._limit = limit
        self._held = 0
        self._coming = 0
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()

    @property
    def held(self) -> int:
        """Bytes that were read and not fetched, of all shards."""
        return self._held

    def share(self, size: int) -> int:
        """What to reserve for an answer of about this size: half of all at most."""
        return min(max(size, self._limit // MOST_SHARDS), self._limit // 2)

    def count(self, change: int) -> None:
        """A shard holds so many bytes more, or less."""
        self._held += change
        if change < 0:
            self._admit()

    async def reserve(self, size: int) -> None:
        """Waits until so much may be read; to be released when it was.

        Cancellation: nothing is reserved then.
        """
        turn = asyncio.get_running_loop().create_future()
        entry = size, turn
        self._waiting.append(entry)
        self.freed()
        try:
            await turn
        except asyncio.CancelledError:
            self._leave(entry)
            raise

    def _leave(self, entry: tuple[int, asyncio.Future[None]]) -> None:
        size, turn = entry
        if turn.done() and not turn.cancelled():
            self.release(size)
        else:
            self._admit()  # others may have waited behind it

    def release(self, size: int) -> None:
        """It was read, or could not be."""
        self._coming -= size
        self._admit()

    def freed(self) -> None:
        """A shard was paused: it gives its part to those that wait, and reads it again later."""
        self._admit()
        for grant in self._grants():
            if not self._waiting:
                return
            if grant.is_paused and grant.size:
                grant.forget_unread()

    def _admit(self) -> None:
        while self._waiting:
            size, turn = self._waiting[0]
            if not turn.cancelled():
                if not self._fits(size):
                    return
                self._coming += size
                turn.set_result(None)
            self._waiting.popleft()

    def _fits(self, size: int) -> bool:
        """One always fits where nothing is on its way: what it brings is not known."""
        if self._held >= self._limit:
            return False
        return not self._coming or self._held + self._coming + size <= self._limit
