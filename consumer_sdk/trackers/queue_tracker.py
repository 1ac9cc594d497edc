"""The ack tracker of a queue: it remembers each settled record by itself.

A queue (Pulsar's shared and key-shared subscriptions) keeps no order. A record that this consumer never
saw may be another consumer's, so a settled record settles no other. The broker redelivers each record
whose ack it did not get. The tracker recognises such records as Pulsar's ack grouping tracker does
(`consumer_sdk.trackers.unflushed`), and for some time after the flush too.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from itertools import chain
from typing import Any, Unpack

from consumer_sdk.options import COUNT, LEAST_0, SECONDS_OR_0, optional
from consumer_sdk.records import (
    AckFlush,
    Assignment,
    Checkpoint,
    Message,
    Outcome,
    Position,
    Run,
    Tracked,
)
from consumer_sdk.records.runs import TrackedLists
from consumer_sdk.trackers.base_tracker import BaseTracker
from consumer_sdk.trackers.chunks import DEAD, DONE, MARKED, RETRY, Chunk
from consumer_sdk.trackers.options import CALLABLE, TrackerOptions
from consumer_sdk.trackers.restored import Restored
from consumer_sdk.trackers.unflushed import RecentlySettled
from consumer_sdk.trackers.window import is_ascending

__all__ = ["ATTEMPTS_AGE", "QueueTracker"]

ATTEMPTS_AGE = 86_400.0
"""Seconds after which failed deliveries that nobody has tried again are forgotten."""


class QueueTracker(BaseTracker):
    """Tracks one assignment of a queue.

    Flushes name what was newly settled, with the native handle of its latest delivery. Checkpoints
    carry attempts alone: no watermark, no ranges.

    Args:
        full: called once when ``flush_count`` acks wait, for a flush before its time.
        flush_count: so many acks are flushed at once.
        proof_count, proof_age: for how many further positions, or seconds, a flushed one is
            remembered, to recognise a redelivery that was on its way already; see `Settled`.
        max_deliveries: of a record; that one is for the dead letters.
        attempts_age: restored attempts that were due so many seconds ago are dropped: another
            consumer has settled the record.
        options: see `TrackerOptions`.

    Raises:
        ConfigurationError: an option that cannot work.

    Concurrency: one thread. O(1) for each record, memory O(unsettled + remembered). The first record
    that comes again after two flushes without any costs O(unsettled + remembered), once.
    """

    __slots__ = (
        "_are_indices_used",
        "_attempts_age",
        "_flush_count",
        "_full",
        "_highest",
        "_index_of",
        "_is_full",
        "_max_deliveries",
        "_named",
        "_rejected",
        "_rejecting",
        "_released",
        "_releasing",
    )

    def __init__(
        self,
        assignment: Assignment,
        wake: Callable[[], None] = lambda: None,
        *,
        full: Callable[[], None] = lambda: None,
        flush_count: int = 1000,
        proof_count: int = 10_000,
        proof_age: float = 60.0,
        attempts_age: float = ATTEMPTS_AGE,
        max_deliveries: int | None = None,
        **options: Unpack[TrackerOptions],
    ) -> None:
        COUNT.check("flush_count", flush_count)
        LEAST_0.check("proof_count", proof_count)
        SECONDS_OR_0.check("proof_age", proof_age)
        SECONDS_OR_0.check("attempts_age", attempts_age)
        optional(COUNT).check("max_deliveries", max_deliveries)
        CALLABLE.check("full", full)
        self._index_of: dict[Position, int] | None = None
        self._are_indices_used = False
        self._highest: Position | None = None
        self._named = RecentlySettled(proof_count, proof_age)
        super().__init__(assignment, wake, settled=self._named, **options)
        self._full = full
        self._flush_count = flush_count
        self._is_full = False
        self._attempts_age = attempts_age
        self._max_deliveries = max_deliveries
        # What the next flush says of records besides that they are settled, and what the one in the air does.
        self._rejected: set[Position] = set()
        self._rejecting: frozenset[Position] = frozenset()
        self._released: list[Position] = []
        self._releasing: list[Position] = []

    def close(self) -> None:
        super().close()
        self._index_of = None
        self._named = RecentlySettled(0, 0)
        self._rejected, self._rejecting = set(), frozenset()
        self._released, self._releasing = [], []

    # -- tracking -------------------------------------------------------------------------

    def _restore(self, checkpoint: Checkpoint, now: float, wall: float) -> None:
        recent = {
            position: (failures, due)
            for position, (failures, due) in checkpoint.attempts.items()
            if due >= wall - self._attempts_age
        }
        kept = Checkpoint(attempts=recent, written=checkpoint.written)
        self._restored = Restored(kept, now, wall, self._policy.maximum)

    def learn(
        self,
        stored: Mapping[Position, tuple[int, float]],
        counted: Mapping[Position, int],
        now: float,
        wall: float,
    ) -> Mapping[Position, int]:
        """Takes over what other consumers have counted.

        Of records that are not here, all of it; of one that waits for a retry, what is more. One
        that is in delivery keeps its attempt's number.

        Args:
            stored: failed deliveries that all together have counted, as a checkpoint has them,
                with due times that can be `believed`.
            counted: what this tracker had, of what is stored.

        Returns:
            what this tracker counts now, of the positions of which it knows what is stored.
        """
        elsewhere = {
            position: (failures, now + (due - wall))
            for position, (failures, due) in stored.items()
            if due >= wall - self._attempts_age and self._is_elsewhere(position)
        }
        self._restored.attempts.clear()
        self._restored.attempts.update(elsewhere)
        learnt = {position: failures for position, (failures, _) in elsewhere.items()}
        for position, (failures, _) in stored.items():
            known = self._below_limit(failures)
            if self._learn_retry(position, known - counted.get(position, 0)):
                learnt[position] = known
        return learnt

    def _below_limit(self, failures: int) -> int:
        """As a checkpoint counts them: or each would find news in the same."""
        limit = self._policy.max_attempts
        return failures if limit is None else min(failures, limit - 1)

    def remind(self) -> None:
        """What was counted is not saved yet: there is something to flush again."""
        self._dirty()

    def _is_elsewhere(self, position: Position) -> bool:
        return self._unsettled_at(position) is None and position not in self._named

    def _learn_retry(self, position: Position, news: int) -> bool:
        index = self.retry_at(position)
        if index is None or news <= 0:
            return False
        self._failures[index] = self._failures.get(index, 0) + news
        return True

    def track(self, run: Run, now: float) -> Tracked:
        if self._is_closed:
            return Tracked(0, 0, dropped=range(len(run.messages)))
        self._has_tracked = True
        positions = run.positions
        if not positions:
            return Tracked(self._window.minted, 0)
        self._named.forget_old(now)
        if run.deliveries or not self._are_all_new(positions, ascend=run.ascends):
            return self._track_slowly(run, now)
        first = self._mint(positions, run.natives, run.size, now)
        self._reach(positions[-1] if run.ascends else max(positions))
        return Tracked(first, len(positions))

    def _reach(self, position: Position) -> None:
        """It was tracked now."""
        if self._highest is None or position > self._highest:
            self._highest = position

    def _are_all_new(self, positions: Sequence[Position], *, ascend: bool) -> bool:
        attempts = self._restored.attempts
        if attempts and not attempts.keys().isdisjoint(positions):
            return False
        if self._are_beyond(positions, ascend=ascend):
            return True
        wanted = frozenset(positions)
        # The view's method: the set's would look at every key of the dict.
        is_known = not self._indices().keys().isdisjoint(wanted) or self._named.knows(wanted)
        return len(wanted) == len(positions) and not is_known

    def _are_beyond(self, positions: Sequence[Position], *, ascend: bool) -> bool:
        """They ascend, from above all that was ever tracked here: most are, if not redelivered."""
        if self._highest is not None and positions[0] <= self._highest:
            return False
        return ascend or is_ascending(positions)

    def _indices(self) -> dict[Position, int]:
        """Where all unsettled records are, and what was settled since the last flush.

        Made when it is first asked for, and kept while some run between two flushes asks for it:
        of most runs, all is new.
        """
        self._are_indices_used = True
        if self._index_of is None:
            live = self._window.live()
            self._index_of = dict(chain.from_iterable(chunk.unsettled() for chunk in live))
        return self._index_of

    def _forget_indices(self, settled: Sequence[Position]) -> None:
        """Of what is flushed now; of all, if nobody has asked for one lately."""
        if self._index_of is not None and self._are_indices_used:
            for position in settled:
                self._index_of.pop(position, None)
        else:
            self._index_of = None
        self._are_indices_used = False

    def _unsettled_at(self, position: Position) -> int | None:
        index = self._indices().get(position)
        return None if index is None or self._window.state(index) == DONE else index

    def _mint(
        self, positions: Sequence[Position], natives: Sequence[Any], size: int, now: float
    ) -> int:
        first = self._window.mint(positions, size, MARKED, now)
        if self._index_of is not None:
            indices = range(first, first + len(positions))
            self._index_of.update(zip(positions, indices, strict=True))
        self._window.set_natives(first, natives)
        return first

    def _track_slowly(self, run: Run, now: float) -> Tracked:
        found, first = TrackedLists(), self._window.minted
        size = run.size // len(run.messages)
        deliveries = run.deliveries or {}
        for offset, message in enumerate(run.messages):
            index = self._window.minted
            self._track_one(offset, message, size, now, found)
            count = deliveries.get(message.position, 1)
            if count > 1 and self._window.minted > index:
                self._count_deliveries(index, count, found)
        if found.dropped:
            self._dirty()
        return found.tracked(first, self._window.minted)

    def _track_one(
        self,
        offset: int,
        message: Message,
        size: int,
        now: float,
        found: TrackedLists,
    ) -> None:
        position = message.position
        if (known := self._unsettled_at(position)) is not None:
            self._window.replace_native(known, message.native)
            found.known.append(offset)
        elif position in self._named:
            self._named.add(position, message.native)
            found.dropped.append(offset)
        else:
            self._take_release_back(position)
            index = self._mint([position], [message.native], size, now)
            self._reach(position)
            self._resume_delivery(index, message, now, found)
            self._restored.attempts.pop(position, None)

    def _take_release_back(self, position: Position) -> None:
        """It has come again: a release that is still to be said would be taken as said of this delivery."""
        for released in (self._released, self._releasing):
            if position in released:
                released.remove(position)

    def _count_deliveries(self, index: int, count: int, found: TrackedLists) -> None:
        """The broker has delivered it before, to somebody who did not settle it.

        1. The broker's last delivery is handed out. 2. The process is killed. 3. The broker gives the record up,
        and nobody hears of it. So that one goes to the dead letters.
        """
        self._failures[index] = count - 1
        found.tries[index] = count
        is_last = self._max_deliveries is not None and count >= self._max_deliveries
        if is_last or self._policy.is_exhausted(count - 1):
            self._window.mark(index, DEAD)
            found.exhausted.append(index)

    # -- settling -------------------------------------------------------------------------

    def _has_side_entries(self) -> bool:
        """Some record has failed, or has a deadline."""
        return bool(self._schedule.moment_of or self._failures or self._unseen)

    def ack(self, index: int) -> bool:
        """In one step where there are no side entries: the hot path."""
        chunk, offset = self._chunks.get(index >> self._shift), index & self._mask
        if chunk is None or chunk.states[offset] != MARKED:
            return super().ack(index)
        # What `_has_side_entries` says, without a call.
        if self._failures or self._unseen or self._schedule.moment_of:
            return super().ack(index)
        chunk.states[offset] = DONE
        chunk.left -= 1
        named = self._named
        positions = named.positions
        positions.append(chunk.positions[offset])
        named.natives.append(chunk.natives[offset])
        chunk.natives[offset] = None
        if self._is_clean:
            self._dirty()
        if not self._is_full and len(positions) + len(named.again) >= self._flush_count:
            self._look_whether_full()
        if not chunk.left:
            self._window.retire(chunk)
        return True

    def _ack_part(self, chunk: Chunk | None, start: int, stop: int) -> int:
        """All at once where there are no side entries."""
        is_plain = chunk is not None and chunk.states.count(MARKED, start, stop) == stop - start
        if chunk is None or not is_plain or self._has_side_entries():
            return super()._ack_part(chunk, start, stop)
        self._name_all(chunk, start, stop)
        return self._settle_open(chunk, start, stop)

    def _name_all(self, chunk: Chunk, start: int, stop: int) -> None:
        self._named.positions += chunk.positions_of(start, stop)
        self._named.natives += chunk.natives[start:stop]
        chunk.natives[start:stop] = [None] * (stop - start)
        self._look_whether_full()

    def _name(self, chunk: Chunk, offset: int) -> None:
        super()._name(chunk, offset)
        self._look_whether_full()

    def _look_whether_full(self) -> None:
        if len(self._named) >= self._flush_count and not self._is_full:
            self._is_full = True
            self._full()

    def dead_lettered(self, index: int) -> bool:
        position = self._window.position(index) if self._window.state(index) == DEAD else None
        is_settled = super().dead_lettered(index)
        if is_settled:
            self._rejected.add(position)
        return is_settled

    def release(self, index: int) -> bool:
        chunk, offset = self._chunks.get(index >> self._shift), index & self._mask
        if chunk is None or chunk.states[offset] != RETRY:
            return self._ignore()
        self._released.append(chunk.positions[offset])
        self._drop(index, chunk, offset)
        self._dirty()
        return True

    def _drop(self, index: int, chunk: Chunk, offset: int) -> None:
        self._schedule.stop(index)
        self._failures.pop(index, None)
        self._unseen.discard(index)
        chunk.natives[offset] = None
        chunk.states[offset] = DONE
        chunk.left -= 1
        if not chunk.left:
            self._window.retire(chunk)

    def forget(self, index: int) -> bool:
        """The broker has taken a record back that nobody here works on: nothing is said of it.

        It is tracked anew if it comes again.

        Returns:
            False: it is settled, or waits for its dead letter.
        """
        chunk, offset = self._chunks.get(index >> self._shift), index & self._mask
        if chunk is None or chunk.states[offset] not in (MARKED, RETRY):
            return False
        self._drop(index, chunk, offset)
        return True

    def retry_at(self, position: Position) -> int | None:
        """The index of a record that waits for its next delivery; None: none does at this position."""
        index = self._unsettled_at(position)
        is_waiting = index is not None and self._window.state(index) == RETRY
        return index if is_waiting else None

    # -- flushing -------------------------------------------------------------------------

    @property
    def flush_due(self) -> float | None:
        due = super().flush_due
        return -math.inf if due is not None and self._is_full else due

    def _take(self, number: int, now: float, wall: float) -> AckFlush:
        self._is_full = False
        settled = self._named.take()
        self._forget_indices(settled.positions)
        self._releasing, self._released = self._released, []
        self._rejecting = frozenset(self._rejected)
        return AckFlush(
            self._assignment,
            number,
            self._checkpoint(now, wall),
            settled,
            rejected=self._rejecting,
            released=tuple(self._releasing),
        )

    def _confirmed(self, outcome: Outcome, now: float) -> bool:  # noqa: ARG002 - of a log only
        self._named.remember(now)
        self._rejected -= self._rejecting
        self._rejecting, self._releasing = frozenset(), []
        return True

    def _put_back(self) -> None:
        self._named.put_back()
        self._released = [*self._releasing, *self._released]
        self._releasing = []

    def _checkpoint(self, now: float, wall: float) -> Checkpoint:
        attempts = self._attempts(now, wall)
        return Checkpoint(
            attempts=attempts,
            identity=self._identity,
            application=self._application,
            written=self._written(attempts, wall),
        )

    def _holes(self) -> tuple[Position | None, int]:
        return None, 0
