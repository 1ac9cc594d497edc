"""Calls the user's handler: workers are made as needed and end when nothing is ready.

A worker that starts makes the next one before it calls the handler. A handler that never
suspends is therefore served by one worker, which empties the queue before the next one runs;
one that waits has as many workers as it can use within a few turns of the loop.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from itertools import groupby
from operator import attrgetter
from typing import Any

from consumer_sdk.records import Batch, Message
from consumer_sdk.runtime.holding import NACKED, SETTLED
from consumer_sdk.runtime.lanes import Lane, Lanes, Ordering
from consumer_sdk.trackers import Reject, Retry

__all__ = ["BatchWorkers", "Workers"]

log = logging.getLogger(__name__)

TURN = 256
"""Deliveries that a worker makes before it lets the event loop turn, if the handler never
suspends: fetching, flushing and signals have to go on."""


class Workers:
    """Calls ``handler(message)`` for what the lanes make ready.

    Args:
        handler: returns to ack; raises to nack, `Retry` or `Reject` to choose.
        concurrency: handlers running at once.
        ordering: see `Ordering`.
        has_left: told when records were settled, so that more may be fetched.
        crashed: told when a worker ends with an error of its own.
    """

    def __init__(
        self,
        handler: Callable[[Any], Awaitable[None]],
        concurrency: int,
        ordering: Ordering,
        *,
        has_left: Callable[[], None],
        crashed: Callable[[BaseException], None],
    ) -> None:
        self._handler = handler
        self._concurrency = concurrency
        self._has_left = has_left
        self._crashed = crashed
        self._tasks: set[asyncio.Task[None]] = set()
        self._at: dict[asyncio.Task[None], Sequence[Lane]] = {}
        self._starting = 0
        self._is_stopped = False
        self.lanes = Lanes(ordering, self._add_worker)
        self.lanes.abandoned = self._cancel_abandoned

    def _add_worker(self) -> None:
        """Makes a worker unless one is about to start, or all are there."""
        is_enough = self._starting or len(self._tasks) >= self._concurrency
        if is_enough or self._is_stopped or not self._has_work():
            return
        self._starting += 1
        task = asyncio.get_running_loop().create_task(self._work(), name="consumer_sdk worker")
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        self._at.pop(task, None)
        error = None if task.cancelled() else task.exception()
        if error is not None:
            self._crashed(error)
        # A record that came while this worker was ending found all places taken.
        self._add_worker()

    def _cancel_abandoned(self) -> None:
        """Ends the handlers of lost partitions: another consumer processes those records now.

        Left alone, stuck ones would hold their places for ever. The cancellation is taken off the
        worker's account at once, since the worker goes on: only its handler is to end.
        """
        for task, lanes in self._at.items():
            if all(lane.holding.is_closed and lane.running for lane in lanes):
                task.cancel()
                task.uncancel()

    def _has_work(self) -> bool:
        return bool(self.lanes.ready)

    async def _work(self) -> None:
        self._starting -= 1
        lanes, handler, turn = self.lanes, self._handler, 0
        task, at = asyncio.current_task(), self._at
        assert task is not None  # noqa: S101 - a worker is one
        # One frame for each delivery, and no call that can be spared: this is the hot path.
        while (lane := lanes.take_one()) is not None:
            if not self._starting:
                self._add_worker()
            message = lane.queue[0]
            at[task] = (lane,)
            try:
                await handler(message)
            except BaseException as error:  # noqa: BLE001 - sorted out by _raised
                self._raised(message, error)
            else:
                holder: Any = message.holder
                if holder is lane.holding:
                    holder.moot += not holder.ack(message.index)
                else:
                    holder.returned([message])
            lanes.done(lane)
            turn += 1
            if turn % TURN == 0:
                self._has_left()
                await asyncio.sleep(0)
        self._has_left()

    def _raised(self, message: Message, error: BaseException) -> None:
        """User code may raise whatever it likes: that is a failed delivery.

        A drain's cancellation is none: the record stays unsettled, and the worker ends.
        """
        is_drain = isinstance(error, asyncio.CancelledError) and _is_cancelled()
        if is_drain or isinstance(error, KeyboardInterrupt | SystemExit):
            raise error
        self._failed(message, error)

    def _failed(self, message: Message, error: BaseException) -> None:
        """Explicit settles stand; the outcome decides only what is still open.

        What a cancelled handler raises instead of the cancellation is no failed delivery either.
        """
        if message.index in (NACKED, SETTLED) or self._is_stopped:
            return
        if not isinstance(error, Reject | Retry):
            log.debug("delivery of %r failed", message, exc_info=error)
        holder: Any = message.holder
        holder.raised(message, error)

    async def cancel(self, grace: float) -> None:
        """Cancels the handlers that still run, and waits up to ``grace`` seconds for their end."""
        self._is_stopped = True
        if self._tasks:
            for task in self._tasks:
                task.cancel()
            _ended, stubborn = await asyncio.wait(self._tasks, timeout=grace)
            if stubborn:
                log.warning("%d handlers go on although they were cancelled", len(stubborn))


class BatchWorkers(Workers):
    """Calls ``handler(batch)`` with records from many lanes, holding each of them.

    Args:
        size: records in a batch, at most.
        wait: seconds that the first of them waits for the rest.
    """

    def __init__(
        self,
        handler: Callable[[Any], Awaitable[None]],
        concurrency: int,
        ordering: Ordering,
        *,
        size: int,
        wait: float,
        has_left: Callable[[], None],
        crashed: Callable[[BaseException], None],
    ) -> None:
        super().__init__(handler, concurrency, ordering, has_left=has_left, crashed=crashed)
        self._size = size
        self._wait = wait
        self._timer: asyncio.TimerHandle | None = None
        self._is_overdue = False

    def _has_work(self) -> bool:
        lanes = self.lanes
        if not lanes.ready:
            return False
        if self._is_overdue or lanes.is_full or lanes.available >= self._size:
            return True
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(self._wait, self._overdue)
        return False

    def _overdue(self) -> None:
        self._timer, self._is_overdue = None, True
        self._add_worker()

    async def _work(self) -> None:
        self._starting -= 1
        while self._has_work():
            lanes, batch = self._collect()
            if not batch:
                break
            self._add_worker()
            await self._deliver_batch(lanes, batch)
            self._has_left()
            await asyncio.sleep(0)

    def _collect(self) -> tuple[list[Lane], Batch]:
        lanes, batch = [], Batch()
        while len(batch) < self._size:
            taken = self.lanes.take(self._size - len(batch))
            if taken is None:
                break
            lane, messages = taken
            lanes.append(lane)
            batch += messages
        self._is_overdue = False
        return lanes, batch

    async def _deliver_batch(self, lanes: list[Lane], batch: Batch) -> None:
        task = asyncio.current_task()
        assert task is not None  # noqa: S101 - a worker is one
        self._at[task] = lanes
        try:
            await self._handler(batch)
        except BaseException as error:  # noqa: BLE001 - sorted out by _raised
            for message in batch:
                self._raised(message, error)
        else:
            for holder, messages in groupby(batch, attrgetter("holder")):
                holder.returned(list(messages))
        for lane in lanes:
            self.lanes.done(lane)
        self._add_worker()

    async def cancel(self, grace: float) -> None:
        """Cancels the handlers that still run, and waits up to ``grace`` seconds for their end."""
        if self._timer is not None:
            self._timer.cancel()
        await super().cancel(grace)


def _is_cancelled() -> bool:
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
