"""Calls the user's handler: workers are made as needed and end when nothing is ready.

A worker that starts makes the next one before it calls the handler. So a handler that never
suspends is served by one worker, which goes on for a `Turn` before the next one runs. A handler
that waits has as many workers as it can use within a few turns of the loop.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextvars import ContextVar
from functools import partial
from itertools import groupby
from operator import attrgetter
from typing import Any

from consumer_sdk.errors import HandlerError, NoTransactionsError
from consumer_sdk.records import Batch, Message
from consumer_sdk.records.messages import NotABatchError, NotAMessageError
from consumer_sdk.runtime.dispatch.handlers import (
    AsyncDecodeError,
    FactoryAsHandlerError,
    NotAwaitableError,
    UnawaitedError,
    check_result,
    is_cancelled,
)
from consumer_sdk.runtime.dispatch.lanes import LaneBatch, Lanes, Ordering
from consumer_sdk.runtime.dispatch.loop_watch import LoopWatch, timed
from consumer_sdk.runtime.observing.consumer_log import error_type
from consumer_sdk.runtime.observing.timing import QUICK, Histogram, Timing
from consumer_sdk.runtime.partitions.held_partition import NACKED, SETTLED
from consumer_sdk.runtime.partitions.queue import Lane
from consumer_sdk.trackers import Reject, Retry

__all__ = ["BatchWorkers", "Workers", "current_message"]

log = logging.getLogger(__name__)

TURN = 0.05
"""Seconds for which all workers together deliver before the event loop turns, if handlers do not
suspend: heartbeats, fetching, flushing and signals have to go on."""

MOST = 500
"""Deliveries after which it turns in any case: the next fetch has to be on its way."""

LOOK = 16
"""Quick deliveries that a worker makes before they are counted."""


class InHand:
    """What a worker has given its handler.

    It has no reference to the worker's task. The task's context refers to this object, so each
    worker would be a cycle, which only the garbage collector frees.

    Attributes:
        since: the loop's time when it called the handler.
        lanes: the lanes of the records that it gave it; none before the first delivery and after
            the last one.
    """

    __slots__ = ("lanes", "since")

    def __init__(self) -> None:
        self.since = 0.0
        self.lanes: tuple[Lane, ...] = ()


CURRENT: ContextVar[InHand] = ContextVar("consumer_sdk worker")
"""Of the worker whose handler runs: set once for each worker, since setting it costs too much for each
record. Tasks and threads that the handler starts inherit it."""


def current_message() -> Message | None:
    """The message that the current handler has got from `Consumer.run`.

    None outside of a handler, and in a handler of batches. It works in tasks that a handler starts
    and awaits, and in `asyncio.to_thread`. It does not work in tasks that outlive the handler,
    because the worker goes on to other messages.
    """
    in_hand = CURRENT.get(None)
    lanes = () if in_hand is None else in_hand.lanes
    return lanes[0].queue[0] if lanes and lanes[0].running else None


class Turn:
    """What the workers of one consumer may deliver before the event loop turns.

    Attributes:
        ends: when the time of this turn is over; in the past as long as no worker has delivered.
        left: most deliveries until then, of those that do not suspend. A worker counts its
            deliveries later, so there may be more.
        number: of turns so far.
    """

    __slots__ = ("ends", "left", "number")

    def __init__(self) -> None:
        self.ends, self.left, self.number = -math.inf, MOST, 0

    def is_over(self, now: float) -> bool:
        """Whether the loop has to turn before the next delivery; the first to ask begins a turn."""
        if self.ends == -math.inf:
            asyncio.get_running_loop().call_soon(self._turned)
            self.ends, self.left = now + TURN, MOST
        return now >= self.ends or self.left <= 0

    def _turned(self) -> None:
        self.ends = -math.inf
        self.number += 1


class Workers:
    """Calls ``handler(message)`` for records that the lanes make ready.

    Args:
        handler: returns to ack; raises to nack, `Retry` or `Reject` to choose.
        concurrency: handlers running at once.
        ordering: see `Ordering`.
        has_left: told when records were settled, so that more may be fetched.
        crashed: told when a worker ends with an error of its own.
        watch: asked when time has jumped.
        timing: told of deliveries that failed; the partition counts those that returned.

    One look at the clock ends a delivery and begins the next one.
    """

    unusable: tuple[type[HandlerError], ...] = (
        NotAwaitableError,
        FactoryAsHandlerError,
        UnawaitedError,
        AsyncDecodeError,
        NoTransactionsError,
        NotABatchError,
    )
    """What shows that the handler cannot work with any record."""

    def __init__(
        self,
        handler: Callable[[Any], Awaitable[object]],
        concurrency: int,
        ordering: Ordering,
        *,
        has_left: Callable[[], None],
        crashed: Callable[[BaseException], None],
        watch: LoopWatch | None = None,
        timing: Timing | None = None,
    ) -> None:
        self._handler = handler
        self._timing = timing or Timing()
        self._watch = watch if watch is not None and watch.is_needed else None
        self.limit = self._concurrency = concurrency
        self._has_left = has_left
        self._crashed = crashed
        self._tasks: dict[asyncio.Task[None], InHand] = {}  # in the order of their start
        self._starting = 0
        self._turn = Turn()
        self._time = asyncio.get_running_loop().time
        self._is_stopped = False
        self.lanes = Lanes(ordering, self._add_worker, self._cancel_abandoned)

    def _add_worker(self) -> None:
        """Makes a worker unless one is about to start, or all are there."""
        is_enough = self._starting or len(self._tasks) >= self._concurrency
        if is_enough or self._is_stopped or self.lanes.is_gated or not self._has_work():
            return
        self._starting += 1
        in_hand = InHand()
        work = self._work(in_hand)
        task = asyncio.get_running_loop().create_task(work, name="consumer_sdk worker")
        self._tasks[task] = in_hand
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.pop(task).lanes = ()
        error = None if task.cancelled() else task.exception()
        if error is not None:
            self._crashed(error)
        # 1. The worker finds no lane, and returns. 2. A record is put before the loop calls this: with all
        # places taken, no worker is made for it. 3. This one's place is free, and nobody else would look.
        self._add_worker()

    def _cancel_abandoned(self) -> None:
        """Ends the handlers of lost partitions: another consumer processes those records now.

        Left alone, stuck ones would hold their places for ever.
        """
        # 1. `cancel` cancels what the handler awaits. 2. `uncancel` takes the request off the worker, so that
        # `is_cancelled` says no. 3. The handler is raised CancelledError. 4. `_raised` takes that for a failed
        # delivery, which the closed tracker ignores, and the worker goes on. A worker between two
        # deliveries has no lane that is running, and is left alone.
        for task, in_hand in self._tasks.items():
            lanes = in_hand.lanes
            if lanes and all(lane.holding.is_closed and lane.running for lane in lanes):
                task.cancel()
                task.uncancel()

    def _has_work(self) -> bool:
        return bool(self.lanes.ready)

    def _handling(self) -> Callable[[Any], Awaitable[object]]:
        is_timed = self._watch is not None and self._watch.times_steps
        return self._timed if is_timed else self._handler

    def _timed(self, delivered: Message | Batch) -> Awaitable[object]:
        assert self._watch is not None  # noqa: S101 - it has asked for this
        messages = delivered if isinstance(delivered, Batch) else [delivered]
        return timed(self._handler(delivered), partial(self._watch.blocked, messages))

    async def _begin(self) -> float:
        """The time when the worker that runs this may take a delivery.

        An eager task factory begins a task while it is made: inside of whatever has just made a
        lane ready, and before the worker counts among those that are there.
        """
        if asyncio.current_task() not in self._tasks:
            await asyncio.sleep(0)
        now = await self._take_turn()
        self._starting -= 1
        return now

    async def _take_turn(self) -> float:
        """The time, when there may be a delivery."""
        while self._turn.is_over(now := self._time()):  # noqa: ASYNC110 - an event would wake all
            await asyncio.sleep(0)
        return now

    async def _work(self, in_hand: InHand) -> None:  # noqa: C901, PLR0912 - see below
        now = await self._begin()
        lanes, handler, turn = self.lanes, self._handling(), self._turn
        tasks, time, watch = self._tasks, self._time, self._watch
        CURRENT.set(in_hand)
        handled, quick, number, since = Histogram(), 0, turn.number, now
        # One frame for each delivery, and no call that can be spared: this is the hot path.
        while watch is None or now < watch.until or watch.look():
            lane = lanes.take_one()
            if lane is None:
                break
            if not self._starting and len(tasks) < self._concurrency:
                self._add_worker()
            message = lane.queue[0]
            in_hand.since, in_hand.lanes = now, (lane,)
            holding = lane.holding
            into = holding.handled
            # A revoke may come while the handler waits, and at no other moment of a delivery: between its
            # return, the ack and `done` nothing is awaited. Then the ack may find a closed tracker, and
            # `done` a purged lane.
            try:
                made = await handler(message)
                if made is not None:
                    check_result(self._handler, made)
            except BaseException as error:  # noqa: BLE001 - sorted out by _raised
                into = self._timing.handler(message.stream, error_type(error))
                self._raised((message,), error)
            else:
                holder: Any = message.holder
                if holder is not holding:
                    holder.returned([message])
                elif not holder.ack(message.index):
                    holder.redundant_acks += 1
            lanes.done(lane)
            began, now = now, time()
            if now - began > QUICK or into is not handled:
                if quick:
                    handled.add_quick(quick, began - since)
                into.add(now - began)
                handled, quick, since = into, 0, now
            else:
                quick += 1
            if quick < LOOK and now < turn.ends:
                continue
            handled.add_quick(quick, now - since)
            if turn.number == number:
                turn.left -= quick
            quick, number = 0, turn.number
            if turn.is_over(now):
                self._has_left()
                now, number = await self._take_turn(), turn.number
            since = now
        in_hand.lanes = ()
        handled.add_quick(quick, now - since)
        self._has_left()

    @property
    def busy(self) -> int:
        """How many handlers are running."""
        workers = list(self._tasks.values())
        return sum(any(lane.running for lane in worker.lanes) for worker in workers)

    def running(self) -> Iterator[tuple[float, Lane]]:
        """The lanes that are being processed, each with the loop's time when that began."""
        began: dict[Lane, float] = {}
        for worker in list(self._tasks.values()):
            since = worker.since
            for lane in worker.lanes:
                # 1. A worker ends its delivery, and waits for its turn; it stands at the lane still.
                # 2. Another takes the lane. The later time is the delivery that runs.
                if lane.running and began.get(lane, since) <= since:
                    began[lane] = since
        return ((since, lane) for lane, since in began.items())

    def _raised(self, messages: Sequence[Message], error: BaseException) -> None:
        """User code may raise whatever it likes: that is a failed delivery.

        A drain's cancellation is none: the record stays unsettled, and the worker ends. The same
        with a handler that cannot work: it ends the consumer, and no drain waits for its records.
        """
        if isinstance(error, self.unusable):
            self._break_off()
        is_drain = isinstance(error, asyncio.CancelledError) and is_cancelled()
        if is_drain or isinstance(error, (*self.unusable, KeyboardInterrupt, SystemExit)):
            raise error
        for message in messages:
            self._failed(message, error)

    def _break_off(self) -> None:
        """The handler is called no more, until the error of this worker has ended the consumer."""
        self._concurrency = 0
        for task, in_hand in self._tasks.items():
            if not in_hand.lanes:
                task.cancel()
        current = asyncio.current_task()
        for lane in self._tasks[current].lanes if current else ():
            lane.holding.purged += lane.running

    def _failed(self, message: Message, error: BaseException) -> None:
        """Explicit settles stand; the outcome decides only what is still open.

        What a cancelled handler raises instead of the cancellation is no failed delivery either.
        """
        # 1. The handler nacks its message (NACKED), and goes on. 2. Perhaps the retry is back, or will not
        # come (SETTLED). 3. The handler raises: this delivery was over.
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

    unusable = (
        NotAwaitableError,
        FactoryAsHandlerError,
        UnawaitedError,
        AsyncDecodeError,
        NoTransactionsError,
        NotAMessageError,
    )

    def __init__(
        self,
        handler: Callable[[Any], Awaitable[object]],
        concurrency: int,
        ordering: Ordering,
        *,
        size: int,
        wait: float,
        has_left: Callable[[], None],
        crashed: Callable[[BaseException], None],
        watch: LoopWatch | None = None,
        timing: Timing | None = None,
    ) -> None:
        super().__init__(
            handler,
            concurrency,
            ordering,
            has_left=has_left,
            crashed=crashed,
            watch=watch,
            timing=timing,
        )
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

    async def _work(self, in_hand: InHand) -> None:
        now = await self._begin()
        watch = self._watch
        while self._has_work() and (watch is None or now < watch.until or watch.look()):
            batch = self._collect()
            if not batch:
                break
            self._add_worker()
            in_hand.since = now
            in_hand.lanes = tuple(lane for lane, _messages in batch.parts)
            await self._deliver_batch(batch, now)
            self._has_left()
            await asyncio.sleep(0)
            now = await self._take_turn()

    def _collect(self) -> LaneBatch:
        batch = LaneBatch()
        while len(batch) < self._size:
            taken = self.lanes.take(self._size - len(batch))
            if taken is None:
                break
            batch.add(*taken)
        self._is_overdue = False
        return batch

    async def _deliver_batch(self, batch: LaneBatch, began: float) -> None:
        into = batch.parts[0][0].holding.handled
        try:
            made = await self._handling()(batch)
            check_result(self._handler, made)
        except BaseException as error:  # noqa: BLE001 - sorted out by _raised
            into = self._timing.handler(batch[0].stream, error_type(error))
            self._raised(batch, error)
        else:
            for holder, messages in groupby(batch, attrgetter("holder")):
                holder.returned(list(messages))
        into.add(self._time() - began)
        for lane, _messages in batch.parts:
            self.lanes.done(lane)
        self._add_worker()

    async def cancel(self, grace: float) -> None:
        """Cancels the handlers that still run, and waits up to ``grace`` seconds for their end."""
        if self._timer is not None:
            self._timer.cancel()
        await super().cancel(grace)
