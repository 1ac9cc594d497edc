"""What a share partition keeps of offsets in flight, and of a fetch or of acks on their way through them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import inf

from consumer_sdk.adapters.kafka.share.messages import AcquiredRange, AcquireMode
from consumer_sdk.testing.kafka.share_log import LogBatch, Outcome, RecordState

__all__ = [
    "FEWEST_THROTTLED",
    "Acknowledging",
    "Acquiring",
    "Batch",
    "Changes",
    "Limits",
    "Record",
    "end_of_batch",
    "ranges_of",
    "split",
]

Changes = dict[int, tuple[RecordState, int]]
"""Offset → its new state, and how often it was delivered."""
FEWEST_THROTTLED = 2
"""Deliveries from which on a batch is delivered in smaller parts, at least."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """A broker's settings of the same names, or the group's in their place.

    Attributes:
        lock_duration: seconds.
        is_renewable: ``share.renew.acknowledge.enable``.
    """

    lock_duration: float = 30.0
    delivery_count_limit: int = 5
    max_record_locks: int = 2000
    is_renewable: bool = True

    @property
    def throttled_from(self) -> int:
        """Deliveries from which on a batch is delivered in smaller parts, so that one bad record ends alone."""
        return max(FEWEST_THROTTLED, -(-self.delivery_count_limit // 2))


@dataclass(slots=True)
class Record:
    """One offset in flight.

    Attributes:
        is_moving: its new state is being stored; until then nobody gets it, and nobody can say anything of it.
    """

    state: RecordState
    count: int
    member: str = ""
    expires_at: float = inf
    is_moving: bool = False

    @property
    def is_available(self) -> bool:
        """It may be acquired."""
        return self.state is RecordState.AVAILABLE and not self.is_moving

    @property
    def is_final(self) -> bool:
        """It is not delivered again, and that is stored."""
        return self.state.is_final and not self.is_moving


@dataclass(slots=True)
class Batch:
    """Offsets that were fetched together; the last one included."""

    first: int
    records: list[Record]

    @property
    def last(self) -> int:
        return self.first + len(self.records) - 1

    def within(self, first: int, last: int) -> list[tuple[int, Record]]:
        """Those of the range, with their offsets."""
        begin, end = max(first, self.first), min(last, self.last)
        part = self.records[begin - self.first : max(end + 1 - self.first, 0)]
        return list(enumerate(part, begin))


@dataclass(slots=True)
class Acquiring:
    """One member's fetch on its way through the batches.

    Attributes:
        fetched: what was read of the log.
        room: records that may be acquired still; a whole batch may be more.
    """

    member: str
    mode: AcquireMode
    batch_size: int
    fetched: Sequence[LogBatch]
    last: int
    room: int
    expires_at: float
    ranges: list[AcquiredRange] = field(default_factory=list)

    def take(self, ranges: Sequence[AcquiredRange]) -> int:
        """Notes what was acquired; how many that is."""
        count = sum(acquired.last - acquired.first + 1 for acquired in ranges)
        self.ranges += ranges
        self.room -= count
        return count


@dataclass(slots=True)
class Acknowledging:
    """One member's acks on their way.

    Attributes:
        undo: records that have changed, and as they were.
    """

    member: str
    now: float
    undo: list[tuple[Record, Record]] = field(default_factory=list)
    changes: Changes = field(default_factory=dict)
    outcomes: dict[int, Outcome] = field(default_factory=dict)


def ranges_of(taken: Sequence[tuple[int, Record]]) -> list[AcquiredRange]:
    """Neighbours with the same count together."""
    ranges: list[AcquiredRange] = []
    for offset, record in taken:
        if ranges and ranges[-1][1:] == (offset - 1, record.count):
            ranges[-1] = AcquiredRange(ranges[-1].first, offset, record.count)
        else:
            ranges.append(AcquiredRange(offset, offset, record.count))
    return ranges


def split(work: Acquiring, first: int, last: int) -> list[AcquiredRange]:
    """Ranges of about the batch size, which end where the log's batches end."""
    ranges: list[AcquiredRange] = []
    if last - first + 1 > work.batch_size:
        for batch in work.fetched:
            if batch.base > last:
                break
            if batch.base - first >= work.batch_size:
                ranges.append(AcquiredRange(first, batch.base - 1, 1))
                first = batch.base
    return [*ranges, AcquiredRange(first, last, 1)]


def end_of_batch(fetched: Sequence[LogBatch], offset: int) -> int:
    """The last offset of the log's batch that has this one."""
    floor = [batch for batch in fetched if batch.base <= offset][-1:]
    return floor[0].last if floor and floor[0].last >= offset else offset
