"""Makes settled records durable: grouped, one flush at a time for each assignment.

With a store, the store comes first and decides; the broker is told afterwards, for its lag
tools, through a slot where the latest flush wins. Without one the broker's commit is the
checkpoint. A broker that wants to hear of each settled record redelivers the others: there a
flush is done when the store and the broker have answered, and what either did not take is put
back. A crash between the two means redelivery at most. A queue's store has attempts alone: its
acks come first, and wait for no store.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial

from consumer_sdk.abc import Adapter, CheckpointStore, StoreItem
from consumer_sdk.records import AckFlush, Assignment, Kind, Outcome, OutcomeKind, Position
from consumer_sdk.runtime.holding import Holding, Totals
from consumer_sdk.runtime.options import Options
from consumer_sdk.runtime.queue_attempts import QueueAttempts
from consumer_sdk.trackers import encode_checkpoint

__all__ = ["Flusher"]

log = logging.getLogger(__name__)

FIRST_BACKOFF = 0.05
LONGEST_BACKOFF = 5.0
DONE = (OutcomeKind.DURABLE, OutcomeKind.SENT)
REST = 20
"""How many times as long as a flush took to make the next one waits."""


class Flusher:
    """Flushes all holdings of one consumer.

    Args:
        fenced: told of a holding that this consumer may write no more.

    Attributes:
        attempts: where a queue's are kept; None without a store, and for logs.
    """

    def __init__(
        self,
        adapter: Adapter,
        store: CheckpointStore | None,
        options: Options,
        totals: Totals,
        fenced: Callable[[Holding, Exception | None], None],
    ) -> None:
        self._adapter = adapter
        self._store = store
        self._options = options
        self._totals = totals
        self._fenced = fenced
        self._names_settled = adapter.capabilities.wants_settled
        self._tells_ends = adapter.capabilities.wants_ends
        self._lock = asyncio.Lock()
        self._commit_lock = asyncio.Lock()
        self._is_dirty = asyncio.Event()
        self._has_commits = asyncio.Event()
        self._commits: dict[Assignment, AckFlush] = {}
        self._is_forced = False
        self._has_full = False
        self._backoff = 0.0
        self._rest_until = 0.0
        self.holdings: dict[Assignment, Holding] = {}
        is_queue = adapter.capabilities.kind is Kind.QUEUE
        self.attempts = (
            QueueAttempts(adapter, store, options, self.holdings) if store and is_queue else None
        )

    @property
    def is_durable(self) -> bool:
        """There is a store, or a broker that keeps positions."""
        return self._store is not None or self._adapter.capabilities.commits

    @property
    def tells_broker(self) -> bool:
        """The broker hears of what the store has, for its lag tools alone."""
        has_both = self._store is not None and self._adapter.capabilities.commits
        return has_both and not self._names_settled

    def wake(self) -> None:
        """A tracker has something to flush."""
        self._is_dirty.set()

    def force(self) -> None:
        """Flush now, without waiting for the interval."""
        if self.attempts is not None:
            self.attempts.remind(force=True)
        self._is_forced = True
        self._is_dirty.set()

    def hurry(self) -> None:
        """A tracker has so much to flush that it is due at once."""
        self._has_full = True
        self._is_dirty.set()

    def tell(self, flush: AckFlush) -> None:
        """The broker is to hear where the store stands; the latest of an assignment wins.

        The position alone: what else there is costs as much to send as there are holes.
        """
        self._commits[flush.assignment] = _copy_of(flush)
        self._has_commits.set()

    async def tell_now(self, flushes: Sequence[AckFlush]) -> list[Outcome]:
        """Like `tell`, and returns what came of it."""
        async with self._commit_lock:
            return await self._adapter.commit([_copy_of(flush) for flush in flushes])

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
            if due is None:
                self._is_dirty.clear()
                self._is_forced = False
                await self._is_dirty.wait()
            elif due > clock.monotonic() and not self._is_forced:
                await self._wait_until(due)
            else:
                is_forced, self._is_forced = self._is_forced, False
                await self.flush(list(self.holdings.values()), force=is_forced)

    def _next_due(self) -> float | None:
        found = (h.tracker.flush_due for h in self.holdings.values())
        dues = [due for due in (*found, self._next_save()) if due is not None]
        return max(min(dues), self._rest_until) if dues else None

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

    async def flush(self, holdings: Iterable[Holding], *, force: bool = False) -> None:
        """Flushes those of ``holdings`` that have something to flush.

        Cancellation: what was in the air is put back, and flushed again.
        """
        async with self._lock:
            clock = self._options.clock
            now, wall = clock.monotonic(), clock.wall()
            if self.attempts is not None:
                self.attempts.remind(force=force)
            flushes = [
                (h, flush)
                for h in holdings
                if not h.is_closed and (flush := h.tracker.flush(now, wall, force=force))
            ]
            if not flushes:
                return
            try:
                write = self._prepare([flush for _, flush in flushes], force=force)
                # Many holes make a flush expensive: it may take a twentieth of the time.
                self._rest_until = now + REST * (clock.monotonic() - now)
                outcomes = await write()
            except BaseException:
                for holding, flush in flushes:
                    holding.tracker.flush_failed(flush)
                raise
            self._apply(flushes, outcomes)

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
        if self._adapter.capabilities.commits:
            return partial(self._adapter.commit, flushes)
        return partial(_settled_in_memory, flushes)

    def _encode(
        self, flushes: Sequence[AckFlush], max_size: int
    ) -> tuple[list[StoreItem], list[Position | None]]:
        """What to save, and how far each text reaches where it had to be cut."""
        items, covered = [], []
        for flush in flushes:
            text, last = encode_checkpoint(
                flush.checkpoint,
                broker=self._adapter.broker,
                partition=flush.assignment.partition,
                encode_position=self._adapter.encode_position,
                max_size=max_size,
            )
            items.append(StoreItem(flush.assignment, text))
            covered.append(last)
        return items, covered

    async def _save(
        self,
        store: CheckpointStore,
        items: Sequence[StoreItem],
        covered: Sequence[Position | None],
    ) -> list[Outcome]:
        outcomes = await store.save(self._adapter.group or "", items)
        return [
            replace(outcome, covered=last) if outcome.kind is OutcomeKind.DURABLE else outcome
            for outcome, last in zip(outcomes, covered, strict=True)
        ]

    async def _ack_and_save(
        self, attempts: QueueAttempts, flushes: Sequence[AckFlush], *, force: bool
    ) -> list[Outcome]:
        """Of a queue: no trouble with the store holds acks back."""
        outcomes = await self._adapter.commit(flushes)
        await attempts.save(flushes, force=force)
        return outcomes

    async def _save_and_ack(
        self, save: Callable[[], Awaitable[list[Outcome]]], flushes: Sequence[AckFlush]
    ) -> list[Outcome]:
        """The broker hears of what the store took; what the broker did not take is put back."""
        outcomes = await save()
        taken = [at for at, outcome in enumerate(outcomes) if outcome.kind in DONE]
        acks = await self._adapter.commit([flushes[at] for at in taken]) if taken else []
        for at, outcome in zip(taken, acks, strict=True):
            if outcome.kind not in DONE:
                outcomes[at] = outcome
        return outcomes

    def _apply(
        self, flushes: Sequence[tuple[Holding, AckFlush]], outcomes: Sequence[Outcome]
    ) -> None:
        has_failed = False
        for (holding, flush), outcome in zip(flushes, outcomes, strict=True):
            if holding.is_closed:
                continue
            if outcome.kind in DONE:
                self._succeeded(holding, flush, outcome)
            elif outcome.kind is OutcomeKind.RETRY:
                has_failed = True
                holding.tracker.flush_failed(flush)
                log.warning("flush of %s: %r", holding.assignment.partition, outcome.error)
            else:
                self._fenced(holding, outcome.error)
        longer = min(max(self._backoff * 2, FIRST_BACKOFF), LONGEST_BACKOFF)
        self._backoff = longer if has_failed else 0.0

    def _succeeded(self, holding: Holding, flush: AckFlush, outcome: Outcome) -> None:
        holding.confirm(flush, outcome)
        self._note_cut(holding, outcome)
        if self.tells_broker or (self._tells_ends and flush.checkpoint.ended):
            self.tell(flush)

    def _note_cut(self, holding: Holding, outcome: Outcome) -> None:
        """The checkpoint had a limit, and its top ranges did not fit."""
        is_cut = outcome.covered is not None
        self._totals.truncated += is_cut
        if is_cut and not holding.is_truncated:
            log.warning(
                "%s has more settled ranges than its checkpoint may hold: what is settled after %s "
                "is delivered again after a restart, until the holes below are settled (see "
                "consumer.explain())",
                *(holding.assignment.partition, outcome.covered),
            )
        holding.is_truncated = is_cut

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
                outcomes = await self._adapter.commit(flushes) if flushes else []
            finally:
                self._keep_untold(flushes, outcomes)

    def _keep_untold(self, flushes: Sequence[AckFlush], outcomes: Sequence[Outcome]) -> None:
        for at, flush in enumerate(flushes):
            is_told = at < len(outcomes) and outcomes[at].kind is not OutcomeKind.RETRY
            if not is_told and flush.assignment in self.holdings:
                self._commits.setdefault(flush.assignment, flush)
                self._has_commits.set()


def _copy_of(flush: AckFlush) -> AckFlush:
    bare = replace(flush.checkpoint, ranges=(), attempts={})
    return replace(flush, checkpoint=bare, is_copy=True)


async def _settled_in_memory(flushes: Sequence[AckFlush]) -> list[Outcome]:
    """With neither a store nor a broker that keeps positions, nothing lasts longer than this."""
    return [Outcome.durable() for _ in flushes]
