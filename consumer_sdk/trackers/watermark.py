"""The ack tracker of a log: a watermark, and settled ranges above it.

The ideas are storm-kafka's PartitionManager (pending and failed offsets of one partition),
kinesis-storm-spout's InflightRecordTracker (acked runs between unacked records, retries) and
Pulsar's acknowledgment grouping (acks collected between flushes); the structure is
`consumer_sdk.trackers.chunks`.

Rules:
 1. A position at or below the last one seen gets no index: it is a re-fetch.
 2. Nothing is settled twice; a late, duplicate or unknown call changes nothing and is counted.
 3. A flush is in the air until it is confirmed or put back, and there is one at a time.
 4. A record at its retry limit is stored with one failure less until its dead letter is durable:
    the error dies with the process, and the next one must see it fail again.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sortedcontainers import SortedList

from consumer_sdk.abc import AckTracker
from consumer_sdk.errors import ConfigurationError
from consumer_sdk.records import (
    AckFlush,
    Assignment,
    Checkpoint,
    Due,
    Explanation,
    Message,
    Outcome,
    Position,
    Run,
    Tracked,
    Verdict,
    VerdictKind,
)
from consumer_sdk.trackers.chunks import (
    BITS,
    DEAD,
    DONE,
    MARKED,
    OPEN,
    RETRY,
    SETTLE,
    SIDE_ENTRY,
    STATES,
    Chunk,
    Span,
    Window,
)
from consumer_sdk.trackers.restored import Restored
from consumer_sdk.trackers.retry import RetryPolicy

__all__ = ["WatermarkTracker"]

SETTLEABLE = (OPEN, MARKED, RETRY)
IGNORED = Verdict(VerdictKind.IGNORED)
DEAD_LETTER = Verdict(VerdictKind.DEAD_LETTER)


def _is_consecutive(indices: Sequence[int]) -> bool:
    """``indices`` are a whole range: also inside, since a batch may hold retries out of order."""
    if not indices or indices[-1] - indices[0] != len(indices) - 1:
        return False
    return isinstance(indices, range) or list(indices) == list(range(indices[0], indices[-1] + 1))


@dataclass(slots=True)
class _Timer:
    """A record with a due time: its next delivery (RETRY) or its ack timeout (MARKED)."""

    due: float
    item: Any
    is_retry: bool


@dataclass(slots=True)
class _Found:
    """What the slow path of `track` finds, record by record."""

    dropped: list[int] = field(default_factory=list)
    settled: list[int] = field(default_factory=list)
    held: list[int] = field(default_factory=list)
    tries: dict[int, int] = field(default_factory=dict)
    exhausted: list[int] = field(default_factory=list)


class WatermarkTracker(AckTracker):
    """Tracks one assignment of a log.

    Args:
        assignment: whose acks these are.
        wake: called once whenever the tracker turns from clean to dirty.
        policy: retries and their limit.
        flush_interval: seconds between flushes; 0 for at once.
        ack_timeout: seconds from hand-out after which a delivery counts as failed; None for off.
        identity: the stream's, kept in checkpoints.
        keeps_ranges: whoever stores the flushes keeps ranges and attempts too. If not, flushes
            carry a position alone, which costs the same however many holes there are, and
            receipts above a hole stay open until it closes.
        random: numbers in [0, 1) for the jitter.
        chunk_bits: see `Window`.

    Concurrency: one thread. O(1) amortised for each record, memory O(unsettled + holes).
    """

    __slots__ = (
        "_ack_timeout",
        "_assignment",
        "_chunks",
        "_ended",
        "_failures",
        "_identity",
        "_in_air",
        "_interval",
        "_is_clean",
        "_is_closed",
        "_is_cut",
        "_keeps_ranges",
        "_last_flush",
        "_last_seen",
        "_mask",
        "_next_position",
        "_policy",
        "_random",
        "_restored",
        "_retrying",
        "_schedule",
        "_shift",
        "_span_end",
        "_timers",
        "_unseen",
        "_wake",
        "_window",
        "durable",
        "ignored",
        "number",
    )

    def __init__(
        self,
        assignment: Assignment,
        wake: Callable[[], None] = lambda: None,
        *,
        policy: RetryPolicy | None = None,
        flush_interval: float = 0.1,
        ack_timeout: float | None = None,
        identity: str | None = None,
        keeps_ranges: bool = True,
        random: Callable[[], float] = random.random,
        chunk_bits: int = BITS,
    ) -> None:
        self._assignment = assignment
        self._wake = wake
        self._policy = policy or RetryPolicy()
        self._interval = flush_interval
        self._ack_timeout = ack_timeout
        self._identity = identity
        self._keeps_ranges = keeps_ranges
        self._is_cut = False
        self._random = random
        self._window = Window(chunk_bits)
        self._chunks = self._window.chunks
        self._shift = chunk_bits
        self._mask = self._window.mask
        self._timers: dict[int, _Timer] = {}
        self._schedule: SortedList[tuple[float, int]] = SortedList()
        self._failures: dict[int, int] = {}
        self._retrying = 0
        # Restored retries that nobody has been handed in this assignment.
        self._unseen: set[int] = set()
        self._restored = Restored(Checkpoint(), 0, 0, 0)
        self._last_seen: Position | None = None
        self._span_end: Position | None = None  # of the restored range that it lies in
        self._next_position: Position | None = None
        self._ended = False
        self._is_clean = True
        self._is_closed = False
        self._in_air: AckFlush | None = None
        self._last_flush = float("-inf")
        self.number = 0
        self.durable = 0
        self.ignored = 0

    # -- tracking -------------------------------------------------------------------------

    def restore(self, checkpoint: Checkpoint, now: float, wall: float, *, durable: bool) -> None:
        self._window.prefix = self._last_seen = checkpoint.watermark
        self._restored = Restored(checkpoint, now, wall, self._policy.maximum)
        self._ended = checkpoint.ended
        if not durable:
            self._dirty()

    def track(self, run: Run, now: float) -> Tracked:
        if self._is_closed:
            return Tracked(0, 0, dropped=range(len(run.messages)))
        positions = [message.position for message in run.messages]
        self._moved(run, is_empty=not positions)
        if not positions:
            return Tracked(self._window.minted, 0)
        if self._restored.top is not None or not self._is_new(positions[0]):
            return self._track_slowly(run, positions, now)
        self._last_seen = positions[-1]
        return Tracked(self._window.mint(positions, run.size, OPEN, now), len(positions))

    def _is_new(self, position: Position) -> bool:
        return self._last_seen is None or bool(position > self._last_seen)

    def _moved(self, run: Run, *, is_empty: bool) -> None:
        before, after = self._next_position, run.next_position
        moved = after is not None and (before is None or bool(after > before))
        if moved:
            self._next_position = after
        if (moved and is_empty) or (run.ended and not self._ended):
            self._dirty()
        self._ended = self._ended or run.ended

    def _track_slowly(self, run: Run, positions: list[Position], now: float) -> Tracked:
        found = _Found()
        first = self._window.minted
        size = run.size // len(positions)
        for offset, position in enumerate(positions):
            if not self._is_new(position):
                found.dropped.append(offset)
                continue
            self._last_seen = position
            self._track_one(run.messages[offset], size, now, found)
        if self._last_seen is not None:
            self._restored.passed(self._last_seen)
        if found.dropped or found.settled:
            self._dirty()  # the position may have moved with nothing left to ack
        return Tracked(
            first,
            self._window.minted - first,
            dropped=found.dropped,
            settled=found.settled,
            held=found.held,
            tries=found.tries,
            exhausted=found.exhausted,
        )

    def _track_one(self, message: Message, size: int, now: float, found: _Found) -> None:
        position = message.position
        span_end = self._restored.end_of(position)
        if self._span_end not in (None, span_end):
            self._window.reach(self._span_end)
        self._span_end = span_end
        is_settled = span_end is not None
        index = self._window.mint([position], size, DONE if is_settled else OPEN, now)
        if is_settled:
            found.settled.append(index)
            return
        failures, due = self._restored.attempts.get(position, (0, 0.0))
        if not failures:
            return
        self._failures[index] = failures
        if self._policy.is_exhausted(failures):
            self._window.mark(index, DEAD)
            found.exhausted.append(index)
        elif due > now:
            self._start_timer(index, RETRY, due, message)
            self._unseen.add(index)
            found.held.append(index)
        else:
            self._window.mark(index, MARKED)
            found.tries[index] = failures + 1

    # -- settling -------------------------------------------------------------------------

    def ack(self, index: int) -> bool:
        chunk = self._chunks.get(index >> self._shift)
        if chunk is None or chunk.states[index & self._mask] != OPEN:
            return self._ack_slowly(index)
        chunk.states[index & self._mask] = DONE
        chunk.left -= 1
        if self._is_clean:
            self._dirty()
        if not chunk.left:
            self._window.retire(chunk)
        return True

    def _ack_slowly(self, index: int) -> bool:
        # A retrying record too: the late ack of a delivery that had timed out is good news.
        if self._window.state(index) not in (MARKED, RETRY):
            self.ignored += 1
            return False
        self._settle(index)
        return True

    def _settle(self, index: int) -> None:
        self._stop_timer(index)
        self._failures.pop(index, None)
        self._unseen.discard(index)
        self._window.settle(index)
        self._dirty()

    def ack_all(self, indices: Sequence[int]) -> int:
        if not _is_consecutive(indices):
            return sum(map(self.ack, indices))
        settled, index, end = 0, indices[0], indices[-1] + 1
        while index < end:
            stop = min(end, (index | self._mask) + 1)
            settled += self._ack_within_chunk(index, stop)
            index = stop
        return settled

    def _ack_within_chunk(self, first: int, end: int) -> int:
        count = end - first
        chunk = self._chunks.get(first >> self._shift)
        start = first & self._mask
        if chunk is None or chunk.states.count(OPEN, start, start + count) != count:
            return sum(map(self.ack, range(first, end)))
        chunk.states[start : start + count] = bytes((DONE,)) * count
        chunk.left -= count
        self._dirty()
        if not chunk.left:
            self._window.retire(chunk)
        return count

    def ack_cumulative(self, index: int) -> int:
        if not 0 <= index < self._window.minted:
            self.ignored += 1
            return 0
        if self._unseen:
            return self._ack_seen(index)
        settled = 0
        chunk: Chunk | None = self._window.head
        while chunk is not None and chunk.number << self._shift <= index:
            end = min(index + 1 - (chunk.number << self._shift), self._window.capacity)
            settled += self._settle_up_to(chunk, end)
            chunk = chunk.following
        self.ignored += not settled
        if settled:
            self._dirty()
        return settled

    def _ack_seen(self, last: int) -> int:
        """One by one: whoever acks up to ``last`` has not seen the restored retries below it."""
        seen = []
        for chunk in self._window.live():
            first = chunk.number << self._shift
            states = enumerate(chunk.states[: max(last + 1 - first, 0)], first)
            seen += [i for i, state in states if state in SETTLEABLE and i not in self._unseen]
        self.ignored += not seen
        return sum(map(self.ack, seen))

    def _settle_up_to(self, chunk: Chunk, end: int) -> int:
        states = chunk.states[:end]
        if self._timers or self._failures:
            for match in SIDE_ENTRY.finditer(states):
                index = (chunk.number << self._shift) + match.start()
                self._stop_timer(index)
                self._failures.pop(index, None)
        settled = end - states.count(DONE) - states.count(DEAD)
        if settled:
            chunk.states[:end] = states.translate(SETTLE)
            chunk.left -= settled
            if not chunk.left:
                self._window.retire(chunk)
        return settled

    # -- failing --------------------------------------------------------------------------

    def nack(
        self, index: int, attempt: int, now: float, delay: float | None = None, item: Any = None
    ) -> Verdict:
        if delay is not None and not 0 <= delay < math.inf:
            raise ConfigurationError(f"nack(delay={delay!r}): give finite seconds, 0 or more")
        if not self._is_delivery(index, attempt):
            self.ignored += 1
            return IGNORED
        self._stop_timer(index)
        self._failures[index] = attempt
        self._dirty()
        if self._policy.is_exhausted(attempt):
            self._window.mark(index, DEAD)
            return DEAD_LETTER
        wait = self._policy.delay(attempt, self._random) if delay is None else delay
        self._start_timer(index, RETRY, now + wait, item)
        return Verdict(VerdictKind.RETRY, now + wait)

    def _is_delivery(self, index: int, attempt: int) -> bool:
        is_delivered = self._window.state(index) in (OPEN, MARKED)
        return is_delivered and attempt == self._failures.get(index, 0) + 1

    def reject(self, index: int, attempt: int) -> bool:
        if not self._is_delivery(index, attempt):
            self.ignored += 1
            return False
        self._stop_timer(index)
        self._window.mark(index, DEAD)
        return True

    def dead_lettered(self, index: int) -> bool:
        if self._window.state(index) != DEAD:
            self.ignored += 1
            return False
        self._settle(index)
        return True

    # -- time -----------------------------------------------------------------------------

    def handed_out(self, messages: Sequence[Message], now: float) -> Sequence[Message]:
        if self._ack_timeout is None and self._are_all_open(messages):
            return messages
        wanted = [m for m in messages if self._window.state(m.index) in (OPEN, MARKED)]
        self._unseen.difference_update(message.index for message in wanted)
        if self._ack_timeout is not None:
            for message in wanted:
                self._start_timer(message.index, MARKED, now + self._ack_timeout, message)
        return wanted

    def _are_all_open(self, messages: Sequence[Message]) -> bool:
        """A whole run that nobody has settled meanwhile: seen without looking at each record."""
        indices = [message.index for message in messages]
        if not _is_consecutive(indices):
            return False
        return self._window.count(OPEN, indices[0], indices[-1] + 1) == len(indices)

    def extend(self, index: int, attempt: int, now: float, seconds: float) -> bool:
        if not self._is_delivery(index, attempt):
            self.ignored += 1
            return False
        timer = self._timers.get(index)
        if timer is None:
            return False
        if seconds > 0:
            self._start_timer(index, MARKED, now + seconds, timer.item)
        else:
            self._stop_timer(index)
        return True

    def _start_timer(self, index: int, state: int, due: float, item: Any) -> None:
        self._stop_timer(index)  # a delivery may be handed out again: one entry in the schedule
        self._window.mark(index, state)
        self._retrying += state == RETRY
        self._timers[index] = _Timer(due, item, is_retry=state == RETRY)
        self._schedule.add((due, index))

    def _stop_timer(self, index: int) -> None:
        timer = self._timers.pop(index, None)
        if timer is not None:
            self._schedule.remove((timer.due, index))
            self._retrying -= timer.is_retry

    def due(self, now: float) -> Due:
        ready: list[tuple[int, int, Any]] = []
        expired: list[tuple[int, Verdict, Any]] = []
        while self._schedule and self._schedule[0][0] <= now:
            index = self._schedule[0][1]
            timer = self._timers[index]
            attempt = self._failures.get(index, 0) + 1
            self._stop_timer(index)
            self._window.mark(index, MARKED)
            if timer.is_retry:
                ready.append((index, attempt, timer.item))
            else:
                verdict = self.nack(index, attempt, now, item=timer.item)
                expired.append((index, verdict, timer.item))
        return Due(ready, expired)

    def next_due(self) -> float | None:
        return self._schedule[0][0] if self._schedule else None

    # -- flushing -------------------------------------------------------------------------

    def _dirty(self) -> None:
        if self._is_clean and not self._is_closed:
            self._is_clean = False
            self._wake()

    @property
    def is_dirty(self) -> bool:
        return not self._is_clean

    @property
    def flush_due(self) -> float | None:
        if self._is_clean or self._in_air is not None:
            return None
        return self._last_flush + self._interval

    @property
    def flush_number(self) -> int:
        return self.number + 1

    @property
    def durable_number(self) -> int:
        return self.durable

    def flush(self, now: float, wall: float, *, force: bool = False) -> AckFlush | None:
        due = self.flush_due
        if due is None or self._is_closed or (now < due and not force):
            return None
        self.number += 1
        self._last_flush = now
        self._is_clean = True
        checkpoint = self.checkpoint(now, wall) if self._keeps_ranges else self._position_only()
        self._in_air = AckFlush(self._assignment, self.number, checkpoint)
        return self._in_air

    def flushed(self, flush: AckFlush, outcome: Outcome) -> None:
        if self._in_air is not flush:
            return
        self._in_air = None
        # Where a size budget dropped the top ranges, their receipts stay open until a later
        # flush covers them.
        if outcome.covered is None and not self._is_cut:
            self.durable = flush.number
        if not self._is_clean:
            self._wake()

    def flush_failed(self, flush: AckFlush) -> None:
        if self._in_air is not flush:
            return
        self._in_air = None
        self._is_clean = False
        self._wake()

    def checkpoint(self, now: float, wall: float) -> Checkpoint:
        watermark, ranges = self._settled_spans()
        first = self._window.first_unsettled()
        return Checkpoint(
            watermark=watermark,
            resume=self._resume(first, watermark),
            ranges=tuple(ranges),
            attempts=self._attempts(now, wall),
            ended=self._ended and first < 0,
            identity=self._identity,
        )

    def _position_only(self) -> Checkpoint:
        first, watermark = self._window.first_unsettled(), self._window.watermark()
        self._is_cut = first >= 0 and self.unsettled < self._window.minted - first
        return Checkpoint(
            watermark=watermark,
            resume=self._resume(first, watermark),
            ended=self._ended and first < 0,
            identity=self._identity,
        )

    def _settled_spans(self) -> tuple[Position | None, list[Span]]:
        return self._restored.append_to(*self._window.settled_spans())

    def _resume(self, first_unsettled: int, watermark: Position | None) -> Position | None:
        if first_unsettled >= 0:
            return self._window.position(first_unsettled)
        if self._next_position is not None:
            return self._next_position
        return watermark if self._window.minted else self._restored.resume

    def _attempts(self, now: float, wall: float) -> Mapping[Position, tuple[int, float]]:
        limit = self._policy.max_attempts
        found: dict[Position, tuple[int, float]] = {
            position: (failures, wall + due - now)
            for position, (failures, due) in self._restored.attempts.items()
        }
        for index, failures in self._failures.items():
            stored = failures if limit is None else min(failures, limit - 1)
            if stored:
                timer = self._timers.get(index)
                due = timer.due if timer and timer.is_retry else now
                found[self._window.position(index)] = (stored, wall + max(due - now, 0.0))
        return found

    # -- looking --------------------------------------------------------------------------

    @property
    def unsettled(self) -> int:
        return sum(chunk.left for chunk in self._window.live())

    @property
    def retrying(self) -> int:
        return self._retrying

    @property
    def unsettled_bytes(self) -> int:
        return sum(chunk.unsettled_bytes for chunk in self._window.live())

    def explain(self, now: float) -> Explanation:
        watermark, ranges = self._settled_spans()
        first = self._window.first_unsettled()
        states = [bytes(chunk.states) for chunk in self._window.live()]
        age = 0.0
        if first >= 0:
            age = now - self._chunks[first >> self._shift].tracked_at(first & self._mask)
        return Explanation(
            watermark=watermark,
            unsettled=self.unsettled,
            unsettled_bytes=self.unsettled_bytes,
            holes=len(ranges),
            retrying=sum(state.count(RETRY) for state in states),
            dead_lettering=sum(state.count(DEAD) for state in states),
            pinned_by=self._window.position(first) if first >= 0 else None,
            index=first if first >= 0 else None,
            state=STATES[self._window.state(first)] if first >= 0 else None,
            attempts=self._failures.get(first, 0),
            age=age,
            flush_number=self.flush_number,
            durable_number=self.durable,
        )

    def close(self) -> None:
        self._is_closed = True
        self._window = Window(self._shift)
        self._chunks = self._window.chunks
        self._timers, self._failures = {}, {}
        self._retrying = 0
        self._unseen = set()
        self._schedule = SortedList()
        self._restored = Restored(Checkpoint(), 0, 0, 0)
        self._in_air = None
        self._is_clean = True
