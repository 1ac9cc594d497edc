"""Makes settled records durable: grouped, one flush at a time for each assignment.

Where a flush goes:

- With a store, the store comes first and decides. The broker gets the position afterwards, for its
  lag tools, through a slot in which the latest flush wins.
- Without a store, the broker's commit is the checkpoint.
- A broker that needs an ack for each settled record redelivers the others. A flush is done when the
  store and the broker have answered. What either did not take is put back. A crash between the two
  causes redeliveries at most.
- The store of a queue has only attempts. The acks come first, and wait for no store.

Assignments are in a heap by the time when their flush is due, so those with nothing to flush cost
nothing. If many are due together, they are written in several parts, and the event loop turns in
between.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import math
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from heapq import heappop, heappush
from typing import NamedTuple

from consumer_sdk.abc import Adapter, CheckpointStore, StoreItem, Transactions
from consumer_sdk.checkpoints.forms import Fitted
from consumer_sdk.checkpoints.json import fit_checkpoint
from consumer_sdk.log_limits import REPEATS
from consumer_sdk.records import AckFlush, Assignment, Kind, Outcome, OutcomeKind
from consumer_sdk.runtime.options import Options
from consumer_sdk.runtime.partitions.held_partition import HeldPartition
from consumer_sdk.runtime.partitions.partition_state import ConsumerContext
from consumer_sdk.runtime.partitions.queue_attempts import QueueAttempts

__all__ = ["Flusher"]

log = logging.getLogger(__name__)

FIRST_BACKOFF = 0.05
LONGEST_BACKOFF = 5.0
REST = 20
"""How many times as long as a flush took to make the next one waits."""
LEAST_REST = 0.01
"""Seconds from one flush to the next, unless the interval is shorter: each has a price of its own,
and assignments that turn dirty meanwhile share it."""
EARLY = 0.5
"""Of the interval: an assignment that is due within this time shares the flush of one that is due now. Two
that were first acked at different times would else be written by turns, for ever."""
TOGETHER = 250
"""Assignments in one write at most: a round trip or an fsync for so many is little for each."""
FEW = 50
"""The same, as long as it is not known how long it takes."""
TURN = 0.003
"""Seconds that making the flushes of a write should take: then the event loop has its turn."""


class _Written(NamedTuple):
    """What became of one write: the seconds that its flushes took to make, and whether some failed."""

    spent: float
    has_failed: bool


class Flusher:
    """Flushes all holdings of one consumer.

    Args:
        context: the partitions that are held; it also counts flushes, and times requests to the
            store and the broker.
        fenced: called with a partition that this consumer may no longer write.
        finished: called with a partition that retention has overtaken, when all of it is durable.

    Attributes:
        attempts: keeps the attempts of a queue; None without a store, and for logs.
        transactions: the transactions in which flushes are written; None without them.
    """

    def __init__(
        self,
        adapter: Adapter,
        store: CheckpointStore | None,
        options: Options,
        context: ConsumerContext,
        *,
        fenced: Callable[[HeldPartition, Exception | None], None],
        finished: Callable[[HeldPartition], None],
    ) -> None:
        self._adapter = adapter
        self._store = store
        self._options = options
        self._totals = context.totals
        self._timing = context.log.timing
        self._fenced = fenced
        self._finished = finished
        self._names_settled = adapter.capabilities.wants_settled
        self._tells_ends = adapter.capabilities.wants_ends
        self._lock = asyncio.Lock()
        self._commit_lock = asyncio.Lock()
        self._is_dirty = asyncio.Event()
        self._has_commits = asyncio.Event()
        self._commits: dict[Assignment, AckFlush] = {}
        self._is_forced = False
        self._has_full = False
        self._most = FEW
        self._backoff = 0.0
        self._rest_until = 0.0
        self._least_rest = min(LEAST_REST, options.flush_interval)
        self._early = EARLY * options.flush_interval
        self._dues: list[tuple[float, int, HeldPartition]] = []
        self._numbers = itertools.count()  # holdings do not compare
        self._holdings = context.holdings
        self.transactions: Transactions | None = None
        is_queue = adapter.capabilities.kind is Kind.QUEUE
        self.attempts = (
            QueueAttempts(adapter, store, options, self._holdings) if store and is_queue else None
        )

    @property
    def is_durable(self) -> bool:
        """There is a store, or a broker that keeps positions."""
        return self._store is not None or self._adapter.capabilities.commits

    @property
    def tells_broker(self) -> bool:
        """Whether the broker gets the store's position, only for its lag tools."""
        has_both = self._store is not None and self._adapter.capabilities.commits
        return has_both and not self._names_settled

    def wake(self, holding: HeldPartition) -> None:
        """Its tracker has something to flush."""
        due = holding.tracker.flush_due
        # Else one is in the air: 1. a flush was sent; 2. an ack makes the tracker dirty, and wakes; 3. the
        # answer comes, and the tracker wakes again, since something is left.
        if due is not None:
            heappush(self._dues, (due, next(self._numbers), holding))
        self._is_dirty.set()

    def force(self) -> None:
        """Flush now, without waiting for the interval."""
        if self.attempts is not None:
            self.attempts.remind(force=True)
        self._is_forced = True
        self._is_dirty.set()

    def hurry(self, holding: HeldPartition) -> None:
        """Its tracker has so much to flush that it is due at once."""
        heappush(self._dues, (-math.inf, next(self._numbers), holding))
        self._has_full = True
        self._is_dirty.set()

    def tell(self, flush: AckFlush) -> None:
        """Sends the store's position to the broker later; the latest position of an assignment wins.

        It sends the position alone, because the rest grows with the holes.
        """
        self._commits[flush.assignment] = _copy_of(flush)
        self._has_commits.set()

    async def tell_now(self, flushes: Sequence[AckFlush]) -> list[Outcome]:
        """Like `tell`, and returns what came of it."""
        async with self._commit_lock:
            return await self._commit([_copy_of(flush) for flush in flushes])

    def forget(self, assignment: Assignment) -> None:
        """Drops what is known of a closed assignment, with the commit that waits for it."""
        self._commits.pop(assignment, None)
        if self.attempts is not None:
            self.attempts.forget(assignment)

    async def run(self) -> None:
        """Flushes whatever is due, for ever."""
        clock = self._options.clock
        while True:
            if self._backoff:
                await asyncio.sleep(self._backoff)
            due = self._next_due()
            # Nothing is awaited between this look and the event's `clear`, here and in `_wait_until`: who
            # wakes the flusher later sets the event again.
            if due is None:
                self._is_dirty.clear()
                self._is_forced = False
                await self._is_dirty.wait()
            elif due > clock.monotonic() and not self._is_forced:
                await self._wait_until(due)
            else:
                is_forced, self._is_forced = self._is_forced, False
                await self.flush(self._take_due(force=is_forced), force=is_forced)

    def _next_due(self) -> float | None:
        while self._dues and not _is_due(self._dues[0][2]):
            heappop(self._dues)
        dues = [due for due, _, _ in self._dues[:1]]
        if (save := self._next_save()) is not None:
            dues.append(save)
        return max(min(dues), self._rest_until) if dues else None

    def _take_due(self, *, force: bool) -> Iterator[HeldPartition]:
        """Those that are due, or soon will be, when the flush reaches them; with ``force`` all that are dirty now."""
        if force:
            yield from [holding for _, _, holding in self._dues]
            self._forget_flushed()
            return
        for _ in range(len(self._dues)):
            if self._dues[0][0] > self._options.clock.monotonic() + self._early:
                return
            yield heappop(self._dues)[2]

    def _forget_flushed(self) -> None:
        """Those that wait still, each once, by when it is due now."""
        # 1. A part of a forced flush is written. 2. An ack makes one of it dirty again, which is due later than it
        # was before. 3. The flush ends. By its earlier time it would be taken too soon, and not be flushed.
        waiting: dict[int, tuple[float, int, HeldPartition]] = {}
        for _, number, holding in self._dues:
            if (due := _due_of(holding)) is not None:
                waiting[id(holding)] = due, number, holding
        self._dues = sorted(waiting.values())  # a heap

    def _next_save(self) -> float | None:
        return None if self.attempts is None else self.attempts.next_due

    async def _wait_until(self, due: float) -> None:
        """Waits for it, for `force` or `hurry`: dirty holdings only join the flush that is due."""
        self._is_dirty.clear()
        try:
            async with asyncio.timeout(due - self._options.clock.monotonic()):
                while not (self._is_forced or self._has_full):
                    await self._is_dirty.wait()
                    self._is_dirty.clear()
        except TimeoutError:
            pass
        self._has_full = False

    async def flush(self, holdings: Iterable[HeldPartition], *, force: bool) -> None:
        """Flushes those of ``holdings`` that have something to flush.

        Concurrency: the last flush of a revoke waits for one part of another flush, not for all.

        Cancellation: the unfinished flush is put back, and flushed again.
        """
        began, waiting = self._options.clock.monotonic(), iter(holdings)
        written: list[_Written] = []
        if self.attempts is not None:
            self.attempts.remind(force=force)
        while some := list(itertools.islice(waiting, self._most)):
            async with self._lock:
                made = await self._write(some, force=force)
            written += [] if made is None else [made]
            if len(some) == self._most:
                await asyncio.sleep(0)
            if made is not None:
                self._most = _most_in_a_turn(len(some), made.spent)
        if written:
            # Many holes make a flush expensive: it may take a twentieth of the time.
            rest = REST * sum(each.spent for each in written)
            self._rest_until = began + max(rest, self._least_rest)
            longer = min(max(self._backoff * 2, FIRST_BACKOFF), LONGEST_BACKOFF)
            self._backoff = longer if any(each.has_failed for each in written) else 0.0

    async def _write(self, holdings: Sequence[HeldPartition], *, force: bool) -> _Written | None:
        """None if there was nothing to flush."""
        clock = self._options.clock
        now, wall = clock.monotonic(), clock.wall()
        flushes: list[tuple[HeldPartition, AckFlush]] = []
        try:
            flushes += (
                (h, flush)
                for h in holdings
                if _is_due(h, math.inf if force else now + self._early)
                and (flush := h.tracker.flush(now, wall, force=True))
            )
            if not flushes:
                return None
            for holding, flush in flushes:
                flush.outputs = holding.outputs
            write = self._prepare([flush for _, flush in flushes], force=force)
            spent = clock.monotonic() - now
            outcomes = await write()
        except BaseException:
            # 1. The trackers hand out what is settled. 2. The write is sent. 3. The task is cancelled, or the
            # store raises: nobody knows whether it was applied. So it is put back and written again, which
            # changes nothing where it was.
            for holding, flush in flushes:
                holding.tracker.flush_failed(flush)
            raise
        return _Written(spent, has_failed=self._apply(flushes, outcomes))

    def _prepare(
        self, flushes: Sequence[AckFlush], *, force: bool
    ) -> Callable[[], Awaitable[list[Outcome]]]:
        """Encodes; what it returns does the waiting."""
        self._totals.flushes += 1
        if self.attempts is not None:
            return partial(self._ack_and_save, self.attempts, flushes, force=force)
        if self._store is not None:
            items = self._encode(flushes, self._store.max_size)
            save = partial(self._save, self._store, *items)
            return partial(self._save_and_ack, save, flushes) if self._names_settled else save
        if self.transactions is not None:
            return partial(self._transact, self.transactions, flushes)
        if self._adapter.capabilities.commits:
            return partial(self._commit, flushes)
        return partial(_settled_in_memory, flushes)

    async def _commit(self, flushes: Sequence[AckFlush]) -> list[Outcome]:
        with self._timing.measured("commit"):
            return await self._adapter.commit(flushes)

    async def _transact(
        self, transactions: Transactions, flushes: Sequence[AckFlush]
    ) -> list[Outcome]:
        with self._timing.measured("commit"):
            return await transactions.commit(flushes)

    def _encode(
        self, flushes: Sequence[AckFlush], max_size: int
    ) -> tuple[list[StoreItem], list[Fitted]]:
        """What to save, and what of each checkpoint fits."""
        fitted = [
            fit_checkpoint(
                flush.checkpoint,
                broker=self._adapter.broker,
                partition=flush.assignment.partition,
                encode_position=self._adapter.encode_position,
                max_size=max_size,
            )
            for flush in flushes
        ]
        pairs = zip(flushes, fitted, strict=True)
        return [StoreItem(flush.assignment, each.data) for flush, each in pairs], fitted

    async def _save(
        self,
        store: CheckpointStore,
        items: Sequence[StoreItem],
        fitted: Sequence[Fitted],
    ) -> list[Outcome]:
        with self._timing.measured("save"):
            outcomes = await store.save(self._adapter.group or "", items)
        return [
            Outcome.durable(each.covered, each.forgotten)
            if outcome.kind is OutcomeKind.DURABLE
            else outcome
            for outcome, each in zip(outcomes, fitted, strict=True)
        ]

    async def _ack_and_save(
        self, attempts: QueueAttempts, flushes: Sequence[AckFlush], *, force: bool
    ) -> list[Outcome]:
        """Of a queue: no trouble with the store holds acks back."""
        outcomes = await self._commit(flushes)
        await attempts.save(flushes, force=force)
        return outcomes

    async def _save_and_ack(
        self, save: Callable[[], Awaitable[list[Outcome]]], flushes: Sequence[AckFlush]
    ) -> list[Outcome]:
        """The broker hears of what the store took; what the broker did not take is put back."""
        outcomes = await save()
        taken = [at for at, outcome in enumerate(outcomes) if outcome.is_done]
        acks = await self._commit([flushes[at] for at in taken]) if taken else []
        for at, outcome in zip(taken, acks, strict=True):
            if not outcome.is_done:
                outcomes[at] = outcome
        return outcomes

    def _apply(
        self, flushes: Sequence[tuple[HeldPartition, AckFlush]], outcomes: Sequence[Outcome]
    ) -> bool:
        """Whether some are to be tried again."""
        has_failed = False
        self._timing.flushed(outcome.kind.value for outcome in outcomes)
        for (holding, flush), outcome in zip(flushes, outcomes, strict=True):
            if holding.is_closed:
                # 1. The write is on its way. 2. The partition is lost, or its revoke runs out of time: it is
                # closed. 3. The answer comes. Whoever waited was told; the next owner reads what is stored.
                continue
            if outcome.is_done:
                self._succeeded(holding, flush, outcome)
            elif outcome.kind is OutcomeKind.RETRY:
                has_failed = True
                holding.tracker.flushed(flush, outcome)
                where = holding.assignment.partition
                log.warning("flush of %s: %r", where, outcome.error, extra=REPEATS)
            else:
                self._fenced(holding, outcome.error)
        return has_failed

    def _succeeded(self, holding: HeldPartition, flush: AckFlush, outcome: Outcome) -> None:
        holding.confirm(flush, outcome)
        holding.has_ended = flush.checkpoint.ended
        holding.note_cut(outcome.covered, outcome.forgotten)
        if holding.outputs is not None:
            holding.note_change()  # what was written takes no memory any more
        if self.tells_broker or (self._tells_ends and flush.checkpoint.ended):
            self.tell(flush)
        if holding.is_overtaken and holding.is_finished:
            self._finished(holding)

    async def run_commits(self) -> None:
        """Tells the broker what the store has, for its lag tools, for ever."""
        while True:
            await self._has_commits.wait()
            await self.commit_pending()
            await asyncio.sleep(max(self._options.flush_interval, FIRST_BACKOFF))

    async def commit_pending(self) -> None:
        """Tells the broker what the store has; what fails is told with the next flush."""
        async with self._commit_lock:
            self._has_commits.clear()
            flushes, self._commits = list(self._commits.values()), {}
            outcomes: list[Outcome] = []
            try:
                outcomes = await self._commit(flushes) if flushes else []
            finally:
                self._keep_untold(flushes, outcomes)

    def _keep_untold(self, flushes: Sequence[AckFlush], outcomes: Sequence[Outcome]) -> None:
        for at, flush in enumerate(flushes):
            is_told = at < len(outcomes) and outcomes[at].kind is not OutcomeKind.RETRY
            # Two things may have come between: 1. this commit was sent; 2. a later flush was saved, and
            # waits to be told: `setdefault` keeps it. Or: 2. the partition was closed, and `forget` has
            # dropped its commits: one that is put back would be told by somebody who does not own it.
            if not is_told and flush.assignment in self._holdings:
                self._commits.setdefault(flush.assignment, flush)
                self._has_commits.set()


def _most_in_a_turn(count: int, took: float) -> int:
    return min(int(count * TURN / took) + 1, TOGETHER) if took > 0 else TOGETHER


def _due_of(holding: HeldPartition) -> float | None:
    """None: it was flushed or closed meanwhile, and waits no longer."""
    return None if holding.is_closed else holding.tracker.flush_due


def _is_due(holding: HeldPartition, until: float = math.inf) -> bool:
    due = _due_of(holding)
    return due is not None and due <= until


def _copy_of(flush: AckFlush) -> AckFlush:
    bare = replace(flush.checkpoint, ranges=(), attempts={})
    return replace(flush, checkpoint=bare, is_copy=True)


async def _settled_in_memory(flushes: Sequence[AckFlush]) -> list[Outcome]:
    """With neither a store nor a broker that keeps positions, nothing lasts longer than this."""
    return [Outcome.durable() for _ in flushes]
