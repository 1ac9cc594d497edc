"""The failed deliveries of a queue's records, in a store that all its consumers share.

A broker that redelivers a queue's records to whoever is there counts nothing that lasts: killed
and started again, a consumer would try a poison record for ever. With a store the counts go on.

Several consumers hold each partition at a time, and a record may fail at one after another. So
there is one checkpoint for all of them, and nobody owns it: a save claims it, which reads it, adds
what was counted *since the last save*, and writes. If another has claimed meanwhile the write is
refused, and it begins again; so no count is lost, and two that fail at a time are two. (A save of
which nobody knows whether it was applied may be added twice.) What was settled here is taken out;
what nobody settles or counts for a day leaves by its age: see `QueueTracker`.

Consumers hear of each other's counts when they save, and when they start. They save about once a
second at most, and wait at random when others came in between: or many would only hold each other
up. No ack waits for a save: what could not be saved is news of a later one.
"""

from __future__ import annotations

import asyncio
import logging
import math
import random
from collections.abc import Callable, Mapping, Sequence

from consumer_sdk.abc import Adapter, CheckpointStore, StoreItem
from consumer_sdk.checkpoints.forms import Fitted
from consumer_sdk.checkpoints.json import fit_checkpoint
from consumer_sdk.errors import StoreError, TransientStoreError
from consumer_sdk.records import (
    AckFlush,
    Assignment,
    Checkpoint,
    Outcome,
    OutcomeKind,
    Partition,
    Position,
)
from consumer_sdk.runtime.options import Options
from consumer_sdk.runtime.partitions.held_partition import HeldPartition
from consumer_sdk.trackers import QueueTracker, decode_checkpoint
from consumer_sdk.trackers.queue_tracker import ATTEMPTS_AGE
from consumer_sdk.trackers.restored import believed, written_at

__all__ = ["QueueAttempts"]

log = logging.getLogger(__name__)

ROUNDS = 8
"""How often others may come in between before a save is left for later."""

PAUSE = 0.02
"""Seconds, the longest wait after the first round; twice as long after each other one."""

SPACING = 1.0
"""Seconds between two saves of a partition."""

Attempts = Mapping[Position, tuple[int, float]]
"""Failed deliveries, and when the next one is due, in seconds since the epoch."""


class QueueAttempts:
    """Loads and saves the attempts for one consumer.

    Args:
        holdings: those held now; their trackers learn what others have counted.
        random: numbers in [0, 1), for the waits.
    """

    def __init__(
        self,
        adapter: Adapter,
        store: CheckpointStore,
        options: Options,
        holdings: Mapping[Assignment, HeldPartition],
        random: Callable[[], float] = random.random,
    ) -> None:
        self._adapter = adapter
        self._store = store
        self._options = options
        self._holdings = holdings
        self._group = adapter.group or ""
        # What each tracker had counted when it agreed with the store.
        self._agreed: dict[Assignment, dict[Position, int]] = {}
        self._random = random
        # When each may be saved again, and those that have something to save then.
        self._next: dict[Assignment, float] = {}
        self._waiting: set[Assignment] = set()

    async def load(self, assignments: Sequence[Assignment]) -> dict[Assignment, Checkpoint]:
        """Loads the checkpoints that trackers are restored from.

        Raises:
            StoreError: the store cannot be read, or what it has cannot be used.
        """
        partitions = list(dict.fromkeys(a.partition for a in assignments))
        texts = await self._store.peek(self._group, partitions)
        found = {a: self._decode(a.partition, texts.get(a.partition)) for a in assignments}
        for assignment, checkpoint in found.items():
            self._agreed[assignment] = _counts(checkpoint.attempts)
        return found

    def forget(self, assignment: Assignment) -> None:
        """It is not held any more."""
        self._agreed.pop(assignment, None)
        self._next.pop(assignment, None)
        self._waiting.discard(assignment)

    @property
    def next_due(self) -> float | None:
        """When something waits to be saved, in monotonic seconds; `remind` then."""
        return min((self._next.get(a, 0.0) for a in self._waiting), default=None)

    def remind(self, *, force: bool) -> None:
        """Has the trackers flush again what is due to be saved; all that waits, if forced."""
        now = self._options.clock.monotonic()
        due = {a for a in self._waiting if force or self._next.get(a, 0.0) <= now}
        self._waiting -= due
        for assignment in due:
            self._flush_again(assignment)

    def _flush_again(self, assignment: Assignment) -> None:
        holding = self._holdings.get(assignment)
        if holding is not None and isinstance(holding.tracker, QueueTracker):
            holding.tracker.remind()

    async def save(self, flushes: Sequence[AckFlush], *, force: bool) -> None:
        """Adds what was counted since the last save; what cannot be saved now is flushed again.

        Args:
            force: now, however short ago the last one was.
        """
        # What was agreed upon when these were taken: one that is lost meanwhile has nothing any more,
        # and what it was restored from would count as news.
        agreed = {flush.assignment: self._agreed.get(flush.assignment, {}) for flush in flushes}
        news = [f for f in flushes if agreed[f.assignment] != _counts(f.checkpoint.attempts)]
        self._waiting -= {flush.assignment for flush in flushes}
        if not force:
            news = [flush for flush in news if not self._waits(flush.assignment)]
        failed = await self._save_in_rounds(news, agreed)
        after = self._options.clock.monotonic() + SPACING * (1 + self._random() / 2)
        self._next |= {f.assignment: after for f in news if self._is_held(f)}
        for assignment, outcome in failed.items():
            log.warning("attempts of %s: %r", assignment.partition, outcome.error)
            self._flush_again(assignment)

    def _waits(self, assignment: Assignment) -> bool:
        """It was saved a short while ago."""
        waits = self._options.clock.monotonic() < self._next.get(assignment, 0.0)
        if waits:
            self._waiting.add(assignment)
        return waits

    async def _save_in_rounds(
        self, left: Sequence[AckFlush], agreed: Mapping[Assignment, Mapping[Position, int]]
    ) -> dict[Assignment, Outcome]:
        """Saves in eight rounds at most; returns what could not be saved."""
        outcomes: dict[Assignment, Outcome] = {}
        for turn in range(ROUNDS):
            left = [flush for flush in left if self._is_held(flush)]
            if not left:
                break
            if turn:
                await asyncio.sleep(self._random() * PAUSE * 2.0**turn)
            outcomes |= await self._try(left, agreed)
            left = [f for f in left if _is_fenced(outcomes.get(f.assignment))]
        error = TransientStoreError("other consumers of the queue save all the time")
        outcomes |= {f.assignment: Outcome.retry(error) for f in left}
        return {a: each for a, each in outcomes.items() if each.kind is OutcomeKind.RETRY}

    def _is_held(self, flush: AckFlush) -> bool:
        return flush.assignment in self._agreed

    async def _try(
        self, flushes: Sequence[AckFlush], agreed: Mapping[Assignment, Mapping[Position, int]]
    ) -> dict[Assignment, Outcome]:
        """One claim and one write of each; nothing is written for one that is lost meanwhile."""
        try:
            texts = await self._store.claim(self._group, [f.assignment for f in flushes])
        except StoreError as error:
            return dict.fromkeys((f.assignment for f in flushes), Outcome.retry(error))
        unread: dict[Assignment, Outcome] = {}
        merged: dict[Assignment, Attempts] = {}
        for flush in filter(self._is_held, flushes):
            each = flush.assignment
            try:
                merged[each] = self._merged(flush, texts[each], agreed[each])
            except StoreError as error:  # the others' can be read
                unread[each] = Outcome.retry(error)
        return unread | await self._write([f for f in flushes if f.assignment in merged], merged)

    async def _write(
        self, flushes: Sequence[AckFlush], merged: Mapping[Assignment, Attempts]
    ) -> dict[Assignment, Outcome]:
        fitted = [self._fit(a.partition, merged[a]) for a in merged]
        items = [StoreItem(a, each.data) for a, each in zip(merged, fitted, strict=True)]
        outcomes = await self._store.save(self._group, items) if items else []
        for flush, item, each, outcome in zip(flushes, items, fitted, outcomes, strict=True):
            if outcome.kind is OutcomeKind.DURABLE:
                kept = self._kept(item, each, merged[flush.assignment])
                self._agree(flush, kept, each.forgotten)
        return {item.assignment: outcome for item, outcome in zip(items, outcomes, strict=True)}

    def _kept(self, item: StoreItem, fitted: Fitted, merged: Attempts) -> Attempts:
        """The attempts that fitted into the checkpoint."""
        if not fitted.forgotten:
            return merged
        return self._decode(item.assignment.partition, item.text).attempts

    def _merged(
        self, flush: AckFlush, stored: str | Outcome | None, agreed: Mapping[Position, int]
    ) -> Attempts:
        text = None if isinstance(stored, Outcome) else stored
        wall = self._options.clock.wall()
        checkpoint = self._decode(flush.assignment.partition, text)
        theirs = believed(checkpoint, wall, self._options.retry.maximum)
        return merge(theirs, agreed, flush.checkpoint.attempts, wall - ATTEMPTS_AGE)

    def _agree(self, flush: AckFlush, merged: Attempts, forgotten: int) -> None:
        """The tracker learns what others have counted."""
        counted = _counts(flush.checkpoint.attempts)
        holding = self._holdings.get(flush.assignment)
        if holding is None or not isinstance(holding.tracker, QueueTracker):
            return  # lost during the write
        holding.note_cut(None, forgotten)
        clock = self._options.clock
        learnt = holding.tracker.learn(merged, counted, clock.monotonic(), clock.wall())
        kept = {position: count for position, count in counted.items() if position in merged}
        self._agreed[flush.assignment] = kept | dict(learnt)

    # -- texts ----------------------------------------------------------------------------

    def _decode(self, partition: Partition, text: str | None) -> Checkpoint:
        if text is None:
            return Checkpoint()
        return decode_checkpoint(
            text,
            broker=self._adapter.broker,
            partition=partition,
            identity=None,
            decode_position=self._adapter.decode_position,
        )

    def _fit(self, partition: Partition, attempts: Attempts) -> Fitted:
        written = written_at(attempts, self._options.clock.wall(), self._options.retry.maximum)
        return fit_checkpoint(
            Checkpoint(attempts=attempts, written=written),
            broker=self._adapter.broker,
            partition=partition,
            encode_position=self._adapter.encode_position,
            max_size=self._store.max_size,
        )


def merge(
    theirs: Attempts,
    agreed: Mapping[Position, int],
    mine: Attempts,
    oldest: float = -math.inf,
) -> Attempts:
    """What is stored, with what was counted and settled here since it was agreed upon.

    Args:
        oldest: what was due before is left out: whoever settled it cannot have said so.
    """
    merged = {
        position: each
        for position, each in theirs.items()
        if position in mine or position not in agreed
    }
    for position, (failures, due) in mine.items():
        news = failures - agreed.get(position, 0)
        if news > 0:
            count, other_due = theirs.get(position, (0, due))
            merged[position] = (count + news, max(due, other_due))
    return {position: each for position, each in merged.items() if each[1] >= oldest}


def _counts(attempts: Attempts) -> dict[Position, int]:
    return {position: failures for position, (failures, _) in attempts.items()}


def _is_fenced(outcome: Outcome | None) -> bool:
    return outcome is not None and outcome.kind is OutcomeKind.FENCED
