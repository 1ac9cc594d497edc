"""A share partition at the leader of its partition (KIP-932): Kafka 4.3's `SharePartition`.

What was fetched and is not settled is in flight: batches of offsets, each with its state. The start offset is the first
one that is not final, the end offset the last one that was fetched. States are stored when they change; that a record is
acquired is not, so that another leader finds it available, or finds a gap.

Unlike Kafka's, states are always kept by offset. Kafka keeps one for a batch while it can, and answers the same.
"""

from __future__ import annotations

import heapq
from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from math import inf

from consumer_sdk.adapters.kafka.share.messages import (
    AckBatch,
    AckType,
    AcquiredRange,
    AcquireMode,
)
from consumer_sdk.testing.kafka.refusals import Code, RefusedError
from consumer_sdk.testing.kafka.share_in_flight import (
    FEWEST_THROTTLED,
    Acknowledging,
    Acquiring,
    Batch,
    Changes,
    Limits,
    Record,
    end_of_batch,
    ranges_of,
    split,
)
from consumer_sdk.testing.kafka.share_log import (
    LogBatch,
    Outcome,
    PartitionLog,
    RecordState,
    StoredState,
)

__all__ = ["SharePartition"]

STATES = {
    AckType.GAP: RecordState.ARCHIVED,
    AckType.ACCEPT: RecordState.ACKNOWLEDGED,
    AckType.RELEASE: RecordState.AVAILABLE,
    AckType.REJECT: RecordState.ARCHIVED,
}
OUTCOMES = {
    AckType.GAP: Outcome.GAP,
    AckType.ACCEPT: Outcome.ACCEPTED,
    AckType.REJECT: Outcome.REJECTED,
}


@dataclass(slots=True)
class SharePartition:
    """One partition of one group, while a broker leads it.

    Attributes:
        is_storing: whether the share coordinator answers; while it does not, acks are refused, but locks end.
    """

    log: PartitionLog
    stored: StoredState
    limits: Limits
    start: int = 0
    end: int = 0
    is_storing: Callable[[], bool] = lambda: True
    _batches: list[Batch] = field(default_factory=list)
    _gap: tuple[int, int] | None = None
    _deadlines: list[tuple[float, int, int]] = field(default_factory=list)
    _moving: list[Acknowledging] = field(default_factory=list)
    _next: int | None = None

    # -- from one leader to the next --------------------------------------------------------------

    @classmethod
    def load(
        cls, log: PartitionLog, stored: StoredState, limits: Limits, *, is_latest: bool
    ) -> SharePartition:
        """Reads what is stored; a group without that begins at the end of the log, or at its start."""
        start = stored.start
        if start is None:
            start = log.end if is_latest else log.start
        partition = cls(log, stored, limits, start, start)
        partition._load_batches()
        return partition

    def _load_batches(self) -> None:
        gap_start, expected = None, self.start
        for first, last, state, count in self.stored.batches():
            if gap_start is None and first > expected:
                gap_start = expected
            expected = last + 1
            records = [Record(state, count) for _ in range(last + 1 - first)]
            self._batches.append(Batch(first, records))
        if self._batches:
            self.end = self._batches[-1].last
            if gap_start is not None:
                self._gap = (self.end, gap_start)
            self._move_start()

    # -- what is next -----------------------------------------------------------------------------

    def next_offset(self) -> int:
        """From which the log is read next: the first one that is available, or was never fetched."""
        if self._next is None:
            self._next = self._look_for_next()
        return self._next

    def _look_for_next(self) -> int:
        if not self._batches or self.start > self._batches[-1].last:
            return self.end
        gap_start = self._gap_start()
        for batch in self._batches:
            if gap_start is not None:
                if batch.first > gap_start:
                    return gap_start
                gap_start = max(batch.last + 1, gap_start)
            for offset, record in enumerate(batch.records, batch.first):
                if record.is_available:
                    return offset
        return self.end + 1

    def can_acquire(self) -> bool:
        """Whether a fetch may find something: there is room in flight, or something in flight is available."""
        return self.next_offset() != self.end + 1 or self.in_flight < self.limits.max_record_locks

    @property
    def in_flight(self) -> int:
        """Offsets from the start to the end, whatever their states."""
        return self.end - self.start + 1 if self._batches else 0

    def states(self) -> dict[int, tuple[RecordState, int, str]]:
        """Of what is in flight: state, delivery count, and who has it acquired."""
        return {
            offset: (record.state, record.count, record.member)
            for batch in self._batches
            for offset, record in enumerate(batch.records, batch.first)
            if offset >= self.start
        }

    def _gap_start(self) -> int | None:
        """Where offsets begin that an earlier leader has fetched and this one has not; None for none."""
        if self._gap is None or self._gap[0] != self.end:
            return None
        start = self._gap[1]
        for (
            batch
        ) in self._batches:  # what is fetched is no gap, also where Kafka's has stayed behind
            if batch.first <= start <= batch.last:
                start = batch.last + 1
        return start if start <= self._gap[0] else None

    def _move_gap(self, offset: int) -> None:
        if self._gap is not None:
            is_inside = self._gap[0] == self.end and offset <= self._gap[0]
            # Kafka lets it begin earlier again, and may then not get past it while the flight is full.
            self._gap = (self._gap[0], max(self._gap[1], offset)) if is_inside else None

    # -- acquiring --------------------------------------------------------------------------------

    def acquire(
        self,
        member: str,
        fetched: Sequence[LogBatch],
        offset: int,
        now: float,
        *,
        max_records: int,
        batch_size: int = 500,
        mode: AcquireMode = AcquireMode.BATCH_OPTIMIZED,
    ) -> list[AcquiredRange]:
        """Gives the member what is available of what was read of the log.

        Args:
            offset: from which the log was read.
        """
        if max_records <= 0 or not fetched or fetched[-1].last < self.start:
            return []
        last, room = self._bounds(offset, max_records, fetched[-1].last)
        if room <= 0:
            return []
        expires_at = now + self.limits.lock_duration
        self._next = None
        work = Acquiring(member, mode, batch_size, fetched, last, room, expires_at)
        self._archive_missing(offset, fetched[0].base)
        if last < fetched[0].base:
            # All that was available is compacted away, and the flight was full. Kafka goes on when a lock ends.
            self._move_start()
            return []
        base = self._aligned(fetched[0].base)
        lowest = min(fetched[0].base, base)
        found = [batch for batch in self._batches if lowest <= batch.first <= last]
        if not found:
            self._acquire_new(work, base, last)
        else:
            self._acquire_found(work, base, found)
        for acquired in work.ranges:
            heapq.heappush(self._deadlines, (expires_at, acquired.first, acquired.last))
        return work.ranges

    def _bounds(self, offset: int, max_records: int, last: int) -> tuple[int, int]:
        """The last offset that may be acquired, and how many may."""
        room = min(max_records, self.limits.max_record_locks - self.in_flight)
        if room <= 0 and offset <= self.end:
            return min(last, self.end), min(max_records, self.end - offset + 1)
        return last, room

    def _aligned(self, base: int) -> int:
        """Where to begin, if the log's batch begins before what is in flight, or within."""
        floor = self._floor(base)
        if floor is None:
            return max(base, self.start)
        return floor.first if floor.last >= base else base

    def _floor(self, offset: int) -> Batch | None:
        at = bisect_right(self._batches, offset, key=lambda batch: batch.first)
        return self._batches[at - 1] if at else None

    def _acquire_found(self, work: Acquiring, base: int, found: list[Batch]) -> None:
        """What is in flight may be available again; between it there may be what this leader never fetched."""
        gap_start = base
        for batch in found:
            if work.room <= 0:
                break
            if self._gap_start() is not None:
                if gap_start < batch.first:
                    self._acquire_new(work, gap_start, batch.first - 1)
                gap_start = batch.last + 1
                if work.room <= 0:
                    break
            if self._acquire_again(work, batch):
                work.room = 0
        if work.room > 0 and found[-1].last < work.last:
            self._acquire_new(work, found[-1].last + 1, work.last)
        if work.ranges:
            self._move_gap(work.ranges[-1].last + 1)

    def _acquire_again(self, work: Acquiring, batch: Batch) -> bool:
        """Takes what is available of the batch; True if nothing more may come in this answer."""
        part = batch.within(work.fetched[0].base, work.last)
        available = [(at, record) for at, record in part if record.is_available]
        if not available:
            return False
        is_throttled = max(record.count for _, record in available) >= self.limits.throttled_from
        if is_throttled and work.ranges:
            return True
        is_limited = work.mode is AcquireMode.RECORD_LIMIT
        most = self._part_size(batch, available)
        taken = self._part(available, min(most, work.room) if is_limited else most)
        for _, record in taken:
            record.state, record.count = RecordState.ACQUIRED, record.count + 1
            record.member, record.expires_at = work.member, work.expires_at
        work.take(ranges_of(taken))
        return is_throttled

    def _part_size(self, batch: Batch, available: list[tuple[int, Record]]) -> int:
        """How many may be delivered together: half as many with each delivery from some number on."""
        for at, (_, record) in enumerate(available):
            if record.count >= self.limits.throttled_from:
                size = len(batch.records) >> (record.count - self.limits.throttled_from + 1)
                # Kafka compares with ==, so that a size that is passed already is none.
                return max(1, size) if at < max(1, size) else len(available)
        return len(available)

    def _part(self, available: list[tuple[int, Record]], most: int) -> list[tuple[int, Record]]:
        """As many as may be delivered together; a record on its last delivery goes alone."""
        limit = self.limits.delivery_count_limit
        taken: list[tuple[int, Record]] = []
        for offset, record in available[:most]:
            is_last_time = limit > FEWEST_THROTTLED and record.count == limit - 1
            if is_last_time and taken:
                break
            taken.append((offset, record))
            if is_last_time:
                break
        return taken

    def _acquire_new(self, work: Acquiring, first: int, last: int) -> None:
        """What was never fetched, or not by this leader."""
        if not self._batches and self.end > first:
            first = self.end
        if work.room < last - first + 1:
            whole = end_of_batch(work.fetched, first + work.room - 1)
            last = min(last, whole) if self._gap_start() is not None else whole
        room, is_limited = work.room, work.mode is AcquireMode.RECORD_LIMIT
        ranges = [AcquiredRange(first, last, 1)] if is_limited else split(work, first, last)
        for acquired in ranges:
            self._insert(work, acquired, room if is_limited else inf)
        if self._batches[0].first == first:
            self.start = first
        self.end = max(self.end, last)
        if is_limited:
            ranges = [AcquiredRange(first, min(last, first + room - 1), 1)]
        self._move_gap(ranges[-1].last + 1)
        work.take(ranges)

    def _insert(self, work: Acquiring, acquired: AcquiredRange, most: float) -> None:
        """A batch in flight; what is beyond the limit is fetched, and available."""
        records = [
            Record(RecordState.ACQUIRED, 1, work.member, work.expires_at)
            if at < most
            else Record(RecordState.AVAILABLE, 0)
            for at in range(acquired.last + 1 - acquired.first)
        ]
        at = bisect_right(self._batches, acquired.first, key=lambda batch: batch.first)
        self._batches.insert(at, Batch(acquired.first, records))

    def _archive_missing(self, offset: int, base: int) -> None:
        """What was compacted away while it was available, or before this leader has fetched it."""
        if offset < base:
            self._archive(offset, base)
            if self._batches and offset <= self.start < min(base, self._batches[0].first):
                self.start = min(base, self._batches[0].first)

    def _archive(self, begin: int, end: int) -> None:
        for batch in self._batches:
            for offset, record in batch.within(begin, end - 1):
                if record.state is RecordState.AVAILABLE:
                    record.state, record.member = RecordState.ARCHIVED, ""
                    self.stored.outcomes[offset] = Outcome.REMOVED

    # -- acknowledging ----------------------------------------------------------------------------

    def acknowledge(
        self, member: str, acks: Sequence[AckBatch], now: float, *, finishes: bool = True
    ) -> Code:
        """Carries all of them out, or none; but a renewal holds whatever comes after it.

        Args:
            finishes: False: `finish` does that, as the share coordinator takes a moment to store what is new.
        """
        self._next = None
        work = Acknowledging(member, now)
        try:
            for ack in acks:
                if ack.last >= self.start:
                    self._acknowledge(work, ack)
        except RefusedError as error:
            self._undo(work)
            return error.code
        if work.changes and not self.is_storing():
            self._undo(work)
            return Code.COORDINATOR_NOT_AVAILABLE
        for record, _ in work.undo:
            record.is_moving = True
        self._moving.append(work)
        if finishes:
            self.finish()
        return Code.NONE

    def finish(self) -> None:
        """What was acknowledged is stored."""
        self._next = None
        moving, self._moving = self._moving, []
        for work in moving:
            for record, _ in work.undo:
                record.is_moving = False
            self._store(work.changes, work.outcomes)

    def _acknowledge(self, work: Acknowledging, ack: AckBatch) -> None:
        for batch in self._find(ack):
            for offset, record in batch.within(max(ack.first, self.start), ack.last):
                is_acquired = record.state is RecordState.ACQUIRED and not record.is_moving
                if not is_acquired or record.member != work.member:
                    raise RefusedError(Code.INVALID_RECORD_STATE)
                kind = AckType(ack.types[offset - ack.first if len(ack.types) > 1 else 0])
                if kind is AckType.RENEW:
                    self._renew(offset, record, work.now)
                    continue
                work.undo.append((record, replace(record)))
                self._settle(record, STATES[kind])
                work.changes[offset] = record.state, record.count
                if record.state.is_final:
                    work.outcomes[offset] = OUTCOMES.get(kind, Outcome.LIMIT)

    def _find(self, ack: AckBatch) -> list[Batch]:
        """The batches in flight that the acks are for."""
        floor = self._floor(ack.first)
        if floor is None and ack.first < self.start <= ack.last:
            floor = self._floor(self.start)
        if floor is None:
            raise RefusedError(Code.INVALID_RECORD_STATE)
        found = [batch for batch in self._batches if floor.first <= batch.first <= ack.last]
        if not found or found[-1].last < ack.last:
            raise RefusedError(Code.INVALID_REQUEST)
        return found

    def _renew(self, offset: int, record: Record, now: float) -> None:
        if not self.limits.is_renewable:
            raise RefusedError(Code.INVALID_RECORD_STATE)
        record.expires_at = now + self.limits.lock_duration
        heapq.heappush(self._deadlines, (record.expires_at, offset, offset))

    def _settle(self, record: Record, state: RecordState) -> None:
        is_over = (
            state is RecordState.AVAILABLE and record.count >= self.limits.delivery_count_limit
        )
        record.state = RecordState.ARCHIVED if is_over else state
        record.member, record.expires_at = "", inf

    def _undo(self, work: Acknowledging) -> None:
        for record, before in work.undo:
            record.state, record.member = before.state, before.member
            record.expires_at = before.expires_at

    def _store(self, changes: Changes, outcomes: dict[int, Outcome]) -> None:
        if not changes:
            return
        self._next = None
        self.stored.outcomes.update(outcomes)
        if self.is_storing():
            self.stored.write(self.start, changes)
        self._move_start()

    # -- releasing --------------------------------------------------------------------------------

    def release(self, member: str) -> Code:
        """Makes available what the member has acquired: its session has ended."""
        if not self.is_storing():
            return Code.COORDINATOR_NOT_AVAILABLE
        self._release(lambda record: record.member == member, 0, self.end)
        return Code.NONE

    def wake_at(self) -> float:
        """When the next lock may end; ``inf`` for never."""
        return self._deadlines[0][0] if self._deadlines else inf

    def expire(self, now: float) -> bool:
        """Makes available those whose locks have ended; True if there were some."""
        has_changed = False
        while self._deadlines and self._deadlines[0][0] <= now:
            _, first, last = heapq.heappop(self._deadlines)
            is_late = self._release(lambda record: record.expires_at <= now, first, last)
            has_changed = has_changed or is_late
        return has_changed

    def _release(self, is_meant: Callable[[Record], bool], first: int, last: int) -> bool:
        changes: Changes = {}
        outcomes: dict[int, Outcome] = {}
        for batch in self._batches:
            for offset, record in batch.within(first, last):
                if record.state is RecordState.ACQUIRED and is_meant(record):
                    is_gone = offset < self.start
                    self._settle(record, RecordState.ARCHIVED if is_gone else RecordState.AVAILABLE)
                    changes[offset] = record.state, record.count
                    if record.state.is_final:
                        outcomes[offset] = Outcome.REMOVED if is_gone else Outcome.LIMIT
        self._store(changes, outcomes)
        return bool(changes)

    # -- the start offset -------------------------------------------------------------------------

    def log_start_moved(self) -> None:
        """What the log has no more is archived, but what is acquired when its lock ends."""
        if self.log.start <= self.start:
            return
        self._next = None
        self._archive(self.start, self.log.start)
        self.start = self.log.start
        self.end = max(self.end, self.start) if self._batches else self.start

    def _move_start(self) -> None:
        """Past what is final, and whole batches out of flight: Kafka's `maybeUpdateCachedStateAndOffsets`."""
        last = self._last_final()
        if last is None:
            return
        if last == self._batches[-1].last:
            self.start = self.end = last + 1
            self._batches.clear()
            return
        batch = self._floor(last)
        assert batch is not None
        is_whole = last == batch.last
        following = next(each.first for each in self._batches if each.last > last)
        self.start = max(self.start, following if is_whole else last + 1)
        gap_start = self._gap_start()
        if is_whole and gap_start is not None:
            self.start = min(gap_start, self.start)
        self._batches = [each for each in self._batches if each.last > last]

    def _last_final(self) -> int | None:
        """The last one of those that are final from the start offset on; None where the start offset is not."""
        floor = self._floor(self.start)
        if floor is None or not self._is_final(floor, self.start):
            return None
        last, gap_start = None, self._gap_start()
        for batch in self._batches:
            if gap_start is not None and batch.last >= gap_start:
                return last
            for offset, record in enumerate(batch.records, batch.first):
                if not record.is_final:
                    return last
                last = offset
        return last

    def _is_final(self, batch: Batch, offset: int) -> bool:
        """The state of an offset; one in a hole behind the batch has none, and counts by the batch's last."""
        at = min(offset, batch.last) - batch.first
        return batch.records[at].is_final
