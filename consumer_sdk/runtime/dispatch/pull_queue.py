"""Where records wait when the user pulls them: ``async for`` and ``batches()``.

As long as records are queued, a pull does not suspend. A user who computes between pulls would
block the event loop until the queue is empty, and no heartbeat or flush would run. So a pull that
comes later than `PullQueue.until` first suspends for one turn of the loop, and then pops. A pull
that is cancelled in that turn has taken no record. After the turn the pull asks the `LoopWatch`,
which may gate it.
"""

from __future__ import annotations

import asyncio
import math
from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from copy import copy
from functools import partial
from itertools import chain, islice
from operator import attrgetter, length_hint
from typing import Self, TypeAlias, TypeVar

from consumer_sdk.records import Batch, Message, Position
from consumer_sdk.runtime.dispatch.loop_watch import LoopWatch, Step
from consumer_sdk.runtime.dispatch.workers import TURN
from consumer_sdk.runtime.partitions.held_partition import HeldPartition
from consumer_sdk.runtime.partitions.queue import MessageQueue

__all__ = ["Batches", "PullQueue"]

_Waiting: TypeAlias = tuple[HeldPartition, list[Message]]
"""A holding and records of its that are handed out together; at least one."""


Popped = TypeVar("Popped", bound=Batch | Message | None)

SUSPECTS = 50_000
"""Pulls whose step is timed after the loop has stood still for a session: as many as there may be
records that were in hand then, settled and not durable, or queued. Each costs two turns of the loop."""


class PullQueue(MessageQueue):
    """A queue of runs, with retries ahead of new records.

    Args:
        hand_out: told of messages as they leave; returns those still wanted.
        has_left: told that there is room again.
        watch: asked when time may have jumped; gates this.
        is_timed: deliveries have an ack timeout, so that each is handed out alone.

    Attributes:
        current: what is left of the run that is being handed out.
        time: the loop's.
        until: who pulls later than this lets the loop turn first, by `after_turn`.

    Cancellation: loses no record, because a record is popped only when it is handed over.
    """

    def __init__(
        self,
        hand_out: Callable[[HeldPartition, list[Message]], list[Message]],
        has_left: Callable[[], None],
        watch: LoopWatch,
        *,
        is_timed: bool,
    ) -> None:
        self._hand_out = hand_out
        self._has_left = has_left
        self._watch = watch
        self._is_timed = is_timed
        self._runs = _RunQueue()
        self.current: Iterator[Message] = iter(())
        self._current_holding: HeldPartition | None = None
        self._arrived = asyncio.Event()
        self.count = 0
        self.is_closed = self._is_gated = False
        self._is_full = False
        self.time = asyncio.get_running_loop().time
        self.until = -math.inf
        self._suspects = 0
        self._was_cut = False

    def put(self, holding: HeldPartition, messages: list[Message]) -> None:
        """Queues new records, in order."""
        self._runs.append((holding, messages))
        self.count += len(messages)
        self._arrived.set()

    def put_back(self, holding: HeldPartition, message: Message) -> None:
        """Queues a redelivery, ahead of new records.

        A restored retry goes behind earlier records that were not handed out yet, because a
        cumulative ack of it would settle them unseen.
        """
        is_held = not holding.retries.pop(message.index, True)
        (self._runs.insert if is_held else self._runs.appendleft)((holding, [message]))
        self.count += 1
        self._arrived.set()

    def hold(self, holding: HeldPartition, message: Message) -> None:
        """A restored retry that is not due yet comes through `put_back`."""
        holding.retries[message.index] = False

    def free(self, holding: HeldPartition, message: Message) -> None:
        """Nothing to do: when pulling, no record waits behind a retry."""

    free_up_to = free

    def is_waiting(self, holding: HeldPartition, message: Message) -> bool:
        """The record waits for the user to pull it."""
        mine = [messages for owner, messages in self._runs if owner is holding]
        if self._current_holding is holding:
            mine.append(list(copy(self.current)))
        return any(queued.position == message.position for queued in chain.from_iterable(mine))

    def find(self, holding: HeldPartition, index: int) -> tuple[str, Message | None]:
        """What an unsettled record is doing, and its message where that waits here. O(records)."""
        mine = [messages for owner, messages in self._runs if owner is holding]
        if self._current_holding is holding:
            mine.append(list(copy(self.current)))
        waiting = (message for message in chain.from_iterable(mine) if message.index == index)
        found = next(waiting, None)
        return ("handed out" if found is None else "queued"), found

    def key_of(self, _holding: HeldPartition, _position: Position) -> bytes | None:
        """Nothing waits for a retry here."""
        return None

    def purge(self, holdings: Sequence[HeldPartition]) -> dict[HeldPartition, list[Message]]:
        """Removes and returns the waiting records of these partitions."""
        purged: dict[HeldPartition, list[Message]] = {holding: [] for holding in holdings}
        kept = _RunQueue()
        for holding, messages in self._runs:
            if holding in purged:
                purged[holding] += messages
                self.count -= len(messages)
            else:
                kept.append((holding, messages))
        self._runs = kept
        if self._current_holding is not None and self._current_holding in purged:
            purged[self._current_holding] += self.current
            self.current, self._current_holding = iter(()), None
        return purged

    def abandon(self) -> None:
        """These partitions were closed: none of their records is handed out. Acks of messages that the user has are ignored.

        Their waiting runs are dropped when they are opened.
        """
        if self._current_holding is not None and self._current_holding.is_closed:
            self.current, self._current_holding = iter(()), None

    def sweep(self) -> list[object]:
        """Removes and returns the runs of closed partitions, in one pass."""
        kept, gone = _RunQueue(), list[object]()
        for run in self._runs:
            if run[0].is_closed:
                gone.append(run)
                self.count -= len(run[1])
            else:
                kept.append(run)
        if gone:
            self._runs = kept
        return gone

    def close(self) -> None:
        """Ends all waits; queued records are not handed out any more."""
        self.is_closed = True
        self._take_back()
        self._arrived.set()

    def set_gated(self, *, is_gated: bool) -> None:
        """Whether nothing is handed out for now."""
        self._is_gated = is_gated
        if is_gated:
            self._suspects = SUSPECTS
        self._take_back()
        self._arrived.set()

    def _take_back(self) -> None:
        rest = list(self.current)
        if self._current_holding is not None and rest:
            self._runs.appendleft((self._current_holding, rest))
            self.count += len(rest)
        self.current, self._current_holding = iter(()), None

    def pop(self) -> Message | None:
        """The next message, if there is one now."""
        message = next(self.current, None)
        while message is None and self._runs and not (self.is_closed or self._is_gated):
            self._open_next_run()
            message = next(self.current, None)
        return message

    def _open_next_run(self) -> None:
        holding, messages = self._runs.popleft()
        self.count -= len(messages)
        if self._is_timed and len(messages) > 1:
            self._runs.appendleft((holding, messages[1:]))
            self.count += len(messages) - 1
            messages = messages[:1]
        self.current = iter(self._hand_out(holding, messages))
        self._current_holding = holding
        self._has_left()

    async def wait(self) -> None:
        """Waits until something arrives or the queue is closed."""
        # Nothing is awaited between `clear` and the look: what arrives later sets the event again.
        self._arrived.clear()
        if (self._is_gated or not self._runs) and not self.is_closed:
            await self._arrived.wait()
            self._has_turned()

    async def after_turn(self, pop: Callable[[], Popped]) -> Popped:
        """What ``pop`` finds after a turn of the loop.

        Such a turn is rare. Checking whether the caller has awaited one meanwhile would cost each
        pull more than the turn costs.

        Cancellation: nothing was popped, and the next pull takes no turn. Otherwise a caller who
            gives each pull less time than a turn takes would never get a record.
        """
        if self._was_cut:
            self._was_cut = False
            self._has_turned()
            return pop()
        try:
            if self._suspects:
                return await self._timed(pop)
            await asyncio.sleep(0)
        except asyncio.CancelledError:
            self._was_cut = True
            raise
        self._has_turned()
        return pop()

    async def _timed(self, pop: Callable[[], Popped]) -> Popped:
        """The same, where what the caller does next may have blocked the loop before."""
        self._suspects -= 1
        step = Step(self._watch.blocked)
        await step.begin()
        self._has_turned()
        popped = pop()
        if popped is not None:
            step.took(popped if isinstance(popped, Batch) else [popped])
        return popped

    def _has_turned(self) -> None:
        self._watch.allows()  # or it has gated this
        ends = min(self.time() + TURN, self._watch.until)
        self.until = -math.inf if self._suspects else ends

    def pop_batch(self, most: int) -> Batch:
        """Up to ``most`` messages that are here now."""
        batch = Batch()
        while len(batch) < most:
            message = self.pop()
            if message is None:
                break
            batch.append(message)
            if not self._is_timed:
                batch.extend(islice(self.current, most - len(batch)))
        return batch

    def set_full(self, *, is_full: bool) -> None:
        """Whether no more is fetched until something is settled: then no batch waits for more."""
        self._is_full = is_full
        self._arrived.set()

    async def wait_for(self, count: int, until: float) -> None:
        """Waits for ``count`` messages, until the loop time ``until`` or while more may come."""
        try:
            async with asyncio.timeout_at(until):
                while self.waiting < count and not self.is_closed and not self._is_full:
                    self._arrived.clear()
                    await self._arrived.wait()
        except TimeoutError:
            pass

    @property
    def waiting(self) -> int:
        """Messages that can be had without waiting."""
        return 0 if self._is_gated else self.count + length_hint(self.current)


class Batches:
    """What `Consumer.batches` returns: an iterator of batches.

    Cancellation: what was waiting for its batch stays queued; the iterator can be used again.
    """

    def __init__(
        self, queue: PullQueue, most: int, max_wait: float, raise_failure: Callable[[], None]
    ) -> None:
        self._pull_queue = queue
        self._most = most
        self._max_wait = max_wait
        self._raise_failure = raise_failure

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Batch:
        queue = self._pull_queue
        while not queue.is_closed:
            if not queue.waiting:
                await queue.wait()
                continue
            if queue.waiting < self._most and self._max_wait:
                until = asyncio.get_running_loop().time() + self._max_wait
                await queue.wait_for(self._most, until)
            if batch := await self._pop():
                return batch
        self._raise_failure()
        raise StopAsyncIteration

    async def _pop(self) -> Batch:
        queue = self._pull_queue
        pop = partial(queue.pop_batch, self._most)
        return pop() if queue.time() < queue.until else await queue.after_turn(pop)


# -- the queue of runs -------------------------------------------------------------------------


class _Link:
    """A run, and the one behind it.

    Attributes:
        first: the index of its first record.
    """

    __slots__ = ("behind", "first", "run")

    def __init__(self, run: _Waiting) -> None:
        self.run = run
        self.first = run[1][0].index
        self.behind: _Link | None = None


_FIRST = attrgetter("first")


class _RunQueue:
    """The runs that wait, in the order in which they are handed out; pure.

    It is a linked list, because a restored retry takes its place in the middle. An index finds that
    place: of each holding, it has the runs that start before all of its later ones. They ascend, so
    bisection finds the last run that starts before a record.

    Each operation is O(1), amortised; `insert` looks at O(log runs).
    """

    __slots__ = ("_ahead", "_front", "_last")

    def __init__(self) -> None:
        self._front: _Link | None = None
        self._last: _Link | None = None
        # Of each holding, the runs that start before all of its later ones.
        self._ahead: dict[HeldPartition, deque[_Link]] = {}

    def __bool__(self) -> bool:
        return self._front is not None

    def __iter__(self) -> Iterator[_Waiting]:
        link = self._front
        while link is not None:
            yield link.run
            link = link.behind

    def append(self, run: _Waiting) -> None:
        """Queues a run behind all others."""
        link = _Link(run)
        if self._last is None:
            self._front = link
        else:
            self._last.behind = link
        self._last = link
        ahead = self._ahead.setdefault(run[0], deque())
        while ahead and ahead[-1].first >= link.first:
            ahead.pop()
        ahead.append(link)

    def appendleft(self, run: _Waiting) -> None:
        """Queues a run ahead of all others."""
        link = _Link(run)
        link.behind, self._front = self._front, link
        self._last = self._last or link
        ahead = self._ahead.setdefault(run[0], deque())
        if not ahead or link.first < ahead[0].first:
            ahead.appendleft(link)

    def insert(self, run: _Waiting) -> None:
        """Queues a run right behind the last one of its holding that starts before it does.

        Ahead of all others if there is none.
        """
        ahead = self._ahead.get(run[0], ())
        at = bisect_left(ahead, run[1][0].index, key=_FIRST)
        if not ahead or not at:
            self.appendleft(run)
            return
        link, before = _Link(run), ahead[at - 1]
        link.behind, before.behind = before.behind, link
        if self._last is before:
            self._last = link
        self._ahead[run[0]].insert(at, link)

    def popleft(self) -> _Waiting:
        """Takes the first run out; there has to be one."""
        link = self._front
        if link is None:
            raise IndexError("pop from an empty queue of runs")
        self._front = link.behind
        if self._front is None:
            self._last = None
        ahead = self._ahead[link.run[0]]
        if ahead[0] is link:
            ahead.popleft()
        if not ahead:
            del self._ahead[link.run[0]]
        return link.run
