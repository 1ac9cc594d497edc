"""The failed deliveries of a queue's records, in a store that all its consumers share.

A broker that redelivers a queue's records to whoever is there counts nothing that lasts: killed
and started again, a consumer would try a poison record for ever. With a store the counts go on.

Several consumers hold each partition at a time, and a record may fail at one after another. So
there is one checkpoint for all of them, and nobody owns it: a save claims it, which reads it, adds
what was counted *since the last save*, and writes. If another has claimed meanwhile the write is
refused, and it begins again; so no count is lost, and two that fail at a time are two. (A save of
which nobody knows whether it was applied may be added twice.) What was settled here is taken out;
what nobody settles or counts for a day leaves by its age: see `QueueTracker`.

Consumers hear of each other's counts when they save, and when they start.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from consumer_sdk.abc import Adapter, CheckpointStore, StoreItem
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
from consumer_sdk.runtime.holding import Holding
from consumer_sdk.runtime.options import Options
from consumer_sdk.trackers import QueueTracker, decode_checkpoint, encode_checkpoint

__all__ = ["QueueAttempts"]

ROUNDS = 20
"""How often others may come in between before a save is tried again later, with a back-off."""

Attempts = Mapping[Position, tuple[int, float]]
"""Failed deliveries, and when the next one is due, in seconds since the epoch."""


class QueueAttempts:
    """Loads and saves them for one consumer.

    Args:
        holdings: those held now; their trackers learn what others have counted.
    """

    def __init__(
        self,
        adapter: Adapter,
        store: CheckpointStore,
        options: Options,
        holdings: Mapping[Assignment, Holding],
    ) -> None:
        self._adapter = adapter
        self._store = store
        self._options = options
        self._holdings = holdings
        self._group = adapter.group or ""
        # What each tracker had counted when it agreed with the store.
        self._agreed: dict[Assignment, dict[Position, int]] = {}

    async def load(self, assignments: Sequence[Assignment]) -> dict[Assignment, Checkpoint]:
        """What trackers are restored from.

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

    async def save(self, flushes: Sequence[AckFlush]) -> list[Outcome]:
        """Adds what was counted since the last save; durable at once where that is nothing."""
        outcomes = {flush.assignment: Outcome.durable() for flush in flushes}
        # What was agreed upon when these were taken: one that is lost meanwhile has nothing any more,
        # and what it was restored from would count as news.
        agreed = {flush.assignment: self._agreed.get(flush.assignment, {}) for flush in flushes}
        left = [f for f in flushes if agreed[f.assignment] != _counts(f.checkpoint.attempts)]
        for _ in range(ROUNDS):
            left = [flush for flush in left if self._is_held(flush)]
            if not left:
                break
            outcomes |= await self._try(left, agreed)
            left = [f for f in left if outcomes[f.assignment].kind is OutcomeKind.FENCED]
        for flush in filter(self._is_held, left):
            error = TransientStoreError(
                f"{flush.assignment.partition}: other consumers of the queue save all the time"
            )
            outcomes[flush.assignment] = Outcome.retry(error)
        return [outcomes[flush.assignment] for flush in flushes]

    def _is_held(self, flush: AckFlush) -> bool:
        return flush.assignment in self._agreed

    async def _try(
        self, flushes: Sequence[AckFlush], agreed: Mapping[Assignment, Mapping[Position, int]]
    ) -> dict[Assignment, Outcome]:
        """One claim and one write of each; nothing is written for one that is lost meanwhile."""
        try:
            texts = await self._store.claim(self._group, [f.assignment for f in flushes])
            held = [flush for flush in flushes if self._is_held(flush)]
            merged = {
                f.assignment: self._merged(f, texts[f.assignment], agreed[f.assignment])
                for f in held
            }
        except StoreError as error:
            return dict.fromkeys((f.assignment for f in flushes), Outcome.retry(error))
        return await self._write(held, merged)

    async def _write(
        self, flushes: Sequence[AckFlush], merged: Mapping[Assignment, Attempts]
    ) -> dict[Assignment, Outcome]:
        items = [StoreItem(a, self._encode(a.partition, merged[a])) for a in merged]
        outcomes = await self._store.save(self._group, items) if items else []
        for flush, outcome in zip(flushes, outcomes, strict=True):
            if outcome.kind is OutcomeKind.DURABLE:
                self._agree(flush, merged[flush.assignment])
        return {item.assignment: outcome for item, outcome in zip(items, outcomes, strict=True)}

    def _merged(
        self, flush: AckFlush, stored: str | Outcome | None, agreed: Mapping[Position, int]
    ) -> Attempts:
        text = None if isinstance(stored, Outcome) else stored
        theirs = self._decode(flush.assignment.partition, text).attempts
        return merge(theirs, agreed, flush.checkpoint.attempts)

    def _agree(self, flush: AckFlush, merged: Attempts) -> None:
        """The tracker learns what others have counted."""
        counted = _counts(flush.checkpoint.attempts)
        holding = self._holdings.get(flush.assignment)
        if holding is None or not isinstance(holding.tracker, QueueTracker):
            return  # lost during the write
        clock = self._options.clock
        learnt = holding.tracker.learn(merged, counted, clock.monotonic(), clock.wall())
        kept = {position: count for position, count in counted.items() if position in merged}
        self._agreed[flush.assignment] = kept | {p: merged[p][0] for p in learnt}

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

    def _encode(self, partition: Partition, attempts: Attempts) -> str:
        text, _ = encode_checkpoint(
            Checkpoint(attempts=attempts),
            broker=self._adapter.broker,
            partition=partition,
            encode_position=self._adapter.encode_position,
            max_size=self._store.max_size,
        )
        return text


def merge(theirs: Attempts, agreed: Mapping[Position, int], mine: Attempts) -> Attempts:
    """What is stored, with what was counted and settled here since it was agreed upon."""
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
    return merged


def _counts(attempts: Attempts) -> dict[Position, int]:
    return {position: failures for position, (failures, _) in attempts.items()}
