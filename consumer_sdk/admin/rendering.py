"""Long texts, made in a thread of their own: the event loop goes on meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

__all__ = ["FRESH", "Rendering"]

FRESH = 1.0
"""Seconds for which one text serves whoever asks."""


class Rendering:
    """One text for all that ask within a second, made once at a time.

    Args:
        make: called in a thread.
    """

    def __init__(self, make: Callable[[], bytes], threads: ThreadPoolExecutor) -> None:
        self._make = make
        self._threads = threads
        self._made = 0.0
        self._future: asyncio.Future[bytes] | None = None

    async def get(self) -> bytes:
        """The text.

        Cancellation: others that wait for it get it all the same.
        """
        loop = asyncio.get_running_loop()
        is_stale = self._future is None or (
            self._future.done() and loop.time() - self._made >= FRESH
        )
        if is_stale:
            self._future = loop.run_in_executor(self._threads, self._make)
            self._future.add_done_callback(lambda _: self._done(loop.time()))
        assert self._future is not None  # noqa: S101 - made above
        return await asyncio.shield(self._future)

    def _done(self, at: float) -> None:
        self._made = at
        future = self._future
        if future is not None and (future.cancelled() or future.exception() is not None):
            self._future = None  # the next one tries again
