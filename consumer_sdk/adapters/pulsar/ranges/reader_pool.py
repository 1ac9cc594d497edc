"""Readers that stay open between two ranges, the second of which begins where the first one ended.

That is how the batches of a stream follow on each other, and opening a reader takes three answers of the
broker. What was kept in vain is closed soon: a reader shows up in the topic's statistics.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from dataclasses import dataclass

from consumer_sdk.adapters.pulsar.client.ids import Place
from consumer_sdk.adapters.pulsar.ranges.native import NativeReader

__all__ = ["Kept", "KeptReaders"]

IDLE = 10.0
"""Seconds that a reader is kept."""

MOST = 16
"""Readers that are kept; the one that was kept the longest goes."""

SKIPPED = 64
"""Entries that a reader drops rather than being opened anew: another process may have read them."""


@dataclass(frozen=True, slots=True)
class Kept:
    """A reader that is open.

    Attributes:
        begin: where it was opened.
        stands: the place of the next message.
        queue: messages that the broker sends it ahead.
    """

    reader: NativeReader
    begin: Place
    stands: Place
    queue: int

    def reaches(self, start: Place) -> bool:
        """A range's start is what comes next, or soon."""
        ledger, entry, _ = self.stands
        is_near = start[0] == ledger and entry <= start[1] <= entry + SKIPPED
        return is_near and start >= self.stands and self.reader.is_connected


class KeptReaders:
    """One of each topic at most.

    Concurrency: all of it runs in one event loop.
    """

    def __init__(self) -> None:
        self._kept: OrderedDict[str, tuple[Kept, asyncio.TimerHandle]] = OrderedDict()
        self._closing: set[asyncio.Task[None]] = set()
        self._is_closed = False

    def take(self, topic: str, start: Place) -> Kept | None:
        """The reader that comes to a start next, if there is one; it is the caller's from now on."""
        kept = self._pop(topic)
        if kept is None or kept.reaches(start):
            return kept
        self._close(kept)
        return None

    def keep(self, kept: Kept) -> None:
        """Of a range that was read to its end."""
        topic = kept.reader.topic
        self._drop(topic)
        if self._is_closed:
            self._close(kept)
            return
        timer = asyncio.get_running_loop().call_later(IDLE, self._drop, topic)
        self._kept[topic] = kept, timer
        if len(self._kept) > MOST:
            self._drop(next(iter(self._kept)))

    async def aclose(self) -> None:
        """Closes all of them; each is bounded."""
        self._is_closed = True
        for topic in list(self._kept):
            self._drop(topic)
        if self._closing:
            await asyncio.wait(self._closing)

    def _pop(self, topic: str) -> Kept | None:
        kept, timer = self._kept.pop(topic, (None, None))
        if timer is not None:
            timer.cancel()
        return kept

    def _drop(self, topic: str) -> None:
        kept = self._pop(topic)
        if kept is not None:
            self._close(kept)

    def _close(self, kept: Kept) -> None:
        task = asyncio.create_task(kept.reader.aclose())
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)
