"""Limits the bytes that all shards of one consumer together read ahead."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Collection

from consumer_sdk.adapters.kinesis.consumer.grants import Grant

__all__ = ["ReadAheadBudget"]

MOST_SHARDS = 16_384
"""That may wait at their tips, all at once, each with a small part reserved."""


class ReadAheadBudget:
    """Counts bytes that were read and not fetched, and bytes of requests under way.

    A shard reserves the bytes that it expects before it sends a request, so that not all shards
    send one when there is room for one. Shards wait in order. Every fetch wakes as many as fit.

    Args:
        grants: the shards that are held, as they are at any time.
        limit: bytes. A response that is larger than expected may exceed it.
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
        """How much to reserve for a response of about this size: half of the limit at most."""
        return min(max(size, self._limit // MOST_SHARDS), self._limit // 2)

    def count(self, change: int) -> None:
        """A shard holds so many bytes more, or less."""
        self._held += change
        if change < 0:
            self._admit()

    async def reserve(self, size: int) -> None:
        """Waits until that many bytes may be read. Call `release` afterwards.

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
        if turn.cancelled():
            self._admit()  # others may have waited behind it
        else:
            self.release(size)

    def release(self, size: int) -> None:
        """Frees a reservation, after the read or its failure."""
        self._coming -= size
        self._admit()

    def freed(self) -> None:
        """Frees the bytes of a paused shard for those that wait; it reads its records again later."""
        self._admit()
        for grant in self._grants():
            if not self._waiting:
                return
            if grant.is_paused:
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
