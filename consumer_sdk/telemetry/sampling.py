"""Takes snapshots of consumers for collectors of metrics, which may run in other threads."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterable
from concurrent.futures import CancelledError, Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from functools import partial

from consumer_sdk.options import OptionType
from consumer_sdk.runtime import Consumer, Snapshot
from consumer_sdk.telemetry.model import Measured, Seen

__all__ = ["Sampler", "looks_at"]

FRESH = 0.5
"""Seconds for which a snapshot is used again: a collection asks once for each metric."""
PATIENCE = 2.0
"""Seconds that a collection waits for an event loop that is blocked; then it gets the last snapshot."""


MEASURED = OptionType(
    "a Consumer, what spark_bridge.watch returns, or a SparkFeed",
    lambda value: isinstance(value, Consumer | Measured) and not isinstance(value, type),
)


def looks_at(
    of: Iterable[Consumer | Measured], user: str
) -> dict[object, Callable[[], Iterable[Seen]]]:
    """For each of them, a function that tells how it is now, in whatever thread.

    Args:
        of: consumers, watched sessions and feeds; each counts once, also if it is given twice.
        user: the name of the function that they were given to, for errors.

    Raises:
        ConfigurationError: one is something else.
    """
    found: dict[object, Callable[[], Iterable[Seen]]] = {}
    for each in of:
        MEASURED.check("consumer", each, user)
        look = Sampler(each).look if isinstance(each, Consumer) else each.measured
        found.setdefault(each, look)
    return found


class Sampler:
    """Takes snapshots of a consumer in its own event loop, for callers in any thread."""

    def __init__(self, consumer: Consumer) -> None:
        self._consumer = consumer
        self._lock = threading.Lock()
        self._taken = -FRESH
        self._last: Snapshot | None = None
        self._asked: Future[Snapshot] | None = None

    def snapshot(self) -> Snapshot | None:
        """The consumer now, or lately; None if its loop has been blocked since before the first."""
        loop = self._consumer.loop
        if loop is None or not loop.is_running() or asyncio._get_running_loop() is loop:  # noqa: SLF001 - get_running_loop raises
            return self._fresh(self._consumer.snapshot)  # unlocked: who has the lock waits for this
        with self._lock:
            return self._fresh(partial(self._ask, loop))

    def look(self) -> Iterable[Snapshot]:
        """The snapshot, if there is one, in the form in which feeds and Spark's queries are read."""
        found = self.snapshot()
        return () if found is None else (found,)

    def _fresh(self, take: Callable[[], Snapshot | None]) -> Snapshot | None:
        if time.monotonic() - self._taken >= FRESH:
            found = take()
            self._last = self._last if found is None else found
            self._taken = time.monotonic()
        return self._last

    def _ask(self, loop: asyncio.AbstractEventLoop) -> Snapshot | None:
        if self._asked is None or self._asked.done():  # else the loop has been blocked since then
            asked: Future[Snapshot] = Future()
            try:
                loop.call_soon_threadsafe(self._take, asked)
            except RuntimeError:  # it was closed meanwhile
                return None
            self._asked = asked
        try:
            return self._asked.result(PATIENCE)
        except (FutureTimeoutError, CancelledError):
            return None

    def _take(self, asked: Future[Snapshot]) -> None:
        task = asyncio.create_task(self._consumer.snapshot_in_turns())
        task.add_done_callback(partial(self._answer, asked))

    def _answer(self, asked: Future[Snapshot], task: asyncio.Task[Snapshot]) -> None:
        if task.cancelled():
            asked.cancel()
        elif (error := task.exception()) is not None:
            asked.set_exception(error)  # raised in the thread that waits
        else:
            self._last = task.result()  # who waited may have gone, as may the next one
            asked.set_result(self._last)
