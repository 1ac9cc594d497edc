"""Brings back the retries that are due, and ends the deliveries that took too long."""

from __future__ import annotations

import asyncio
import itertools
import math
from heapq import heappop, heappush

from consumer_sdk.records import Redelivery
from consumer_sdk.runtime.partitions.held_partition import HeldPartition
from consumer_sdk.runtime.partitions.partition_state import ConsumerContext

__all__ = ["Timers"]

SLICE = 250
"""Records, and looks at holdings, before the event loop has its turn."""


class Timers:
    """One sleep for all holdings: until the first thing that is due.

    Holdings are kept by when something of theirs is due first, each once or, after a change, more
    often: all but the last time that was noted for a holding are passed over.
    """

    def __init__(self, context: ConsumerContext) -> None:
        self._context = context
        self._clock = context.clock
        self._changed = asyncio.Event()
        self._dues: list[tuple[float, int, HeldPartition]] = []
        self._numbers = itertools.count()  # holdings do not compare

    def reschedule(self, holding: HeldPartition) -> None:
        """Something of this partition may be due earlier than before."""
        due = holding.tracker.next_due()
        if due is not None and due < holding.due:
            is_first = not self._dues or due < self._dues[0][0]
            self._note(holding, due)
            if is_first:
                self._changed.set()

    def _note(self, holding: HeldPartition, due: float) -> None:
        holding.due = due
        heappush(self._dues, (due, next(self._numbers), holding))

    async def run(self) -> None:
        """Waits and hands back, for ever."""
        while True:
            self._changed.clear()
            due = self._dues[0][0] if self._dues else None
            if due is None or due > self._clock.monotonic():
                await self._wait(due)
            else:
                self._bring_back_some()
                await asyncio.sleep(0)

    async def _wait(self, due: float | None) -> None:
        try:
            async with asyncio.timeout(None if due is None else due - self._clock.monotonic()):
                await self._changed.wait()
        except TimeoutError:
            pass

    def _bring_back_some(self) -> None:
        """Brings back what is due, but no more than a slice: the event loop waits."""
        left, now = SLICE, self._clock.monotonic()
        while left > 0 and self._dues and self._dues[0][0] <= now:
            due, _, holding = heappop(self._dues)
            left -= 1
            # 1. A revoke empties the queue, and waits for what is in handlers. 2. A retry is due: put back, it
            # would be in flight again, and the drain would wait for one delivery after another. So it stays
            # with the tracker, and the next owner delivers it.
            if due == holding.due and not holding.is_draining:
                holding.due = math.inf
                left -= self._bring_back(holding, now, left + 1)
                self.reschedule(holding)

    def _bring_back(self, holding: HeldPartition, now: float, most: int) -> int:
        due = holding.tracker.due(now, most)
        holding.note_change()
        for index, verdict, message in due.expired:
            holding.expire(verdict, index, message)
        for index, attempt, message in reversed(due.ready):  # each goes to the front
            again = Redelivery.of(message, attempt)
            again.holder, again.index = holding, index
            holding.context.totals.redelivered += 1
            holding.own.redelivered += 1
            self._context.queue.put_back(holding, again)
        return len(due.expired) + len(due.ready)
