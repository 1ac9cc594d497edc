"""Brings back the retries that are due, and ends the deliveries that took too long."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Protocol

from consumer_sdk.records import Assignment, Message, Redelivery
from consumer_sdk.runtime.holding import Holding
from consumer_sdk.runtime.options import Options

__all__ = ["Timers"]


class TakesBack(Protocol):
    """Where a redelivery waits to be handed out."""

    def put_back(self, holding: Holding, message: Message) -> None:
        """Queues a redelivery, ahead of new records."""
        ...


class Timers:
    """One sleep for all holdings: until the first thing that is due."""

    def __init__(
        self,
        options: Options,
        holdings: Mapping[Assignment, Holding],
        sink: Callable[[], TakesBack],
    ) -> None:
        self._clock = options.clock
        self._holdings = holdings
        self._sink = sink
        self._changed = asyncio.Event()

    def reschedule(self) -> None:
        """Something may be due earlier than before."""
        self._changed.set()

    async def run(self) -> None:
        """Waits and hands back, for ever."""
        while True:
            self._changed.clear()
            due = self._next_due()
            if due is None or due > self._clock.monotonic():
                await self._wait(due)
            for holding in list(self._holdings.values()):
                self._bring_back(holding)

    def _next_due(self) -> float | None:
        # Nothing comes back into a holding that drains: its timers would be due for ever.
        dues = (h.tracker.next_due() for h in self._holdings.values() if not h.is_draining)
        return min((due for due in dues if due is not None), default=None)

    async def _wait(self, due: float | None) -> None:
        try:
            async with asyncio.timeout(None if due is None else due - self._clock.monotonic()):
                await self._changed.wait()
        except TimeoutError:
            pass

    def _bring_back(self, holding: Holding) -> None:
        if holding.is_draining or holding.is_closed:
            return
        due = holding.tracker.due(self._clock.monotonic())
        for index, verdict, message in due.expired:
            holding.expire(verdict, index, message)
        for index, attempt, message in reversed(due.ready):  # each goes to the front
            again = Redelivery.of(message, attempt)
            again.holder, again.index = holding, index
            holding.totals.redelivered += 1
            self._sink().put_back(holding, again)
