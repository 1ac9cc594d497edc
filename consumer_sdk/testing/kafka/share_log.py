"""A partition's log as a share group reads it, and what the share coordinator keeps of the group's progress."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import IntEnum

__all__ = ["LogBatch", "Outcome", "PartitionLog", "RecordState", "StoredState"]


class RecordState(IntEnum):
    """Of a record at its share partition, by Kafka's numbers."""

    AVAILABLE = 0
    ACQUIRED = 1
    ACKNOWLEDGED = 2
    ARCHIVED = 4

    @property
    def is_final(self) -> bool:
        """It is not delivered again."""
        return self in {RecordState.ACKNOWLEDGED, RecordState.ARCHIVED}


class Outcome(IntEnum):
    """How a record came to its end; Kafka does not keep that, the model does for who judges it."""

    ACCEPTED = 1
    REJECTED = 2
    GAP = 3
    """A member said that there is no record."""
    LIMIT = 4
    """It was delivered as often as the group allows."""
    REMOVED = 5
    """It is not in the log any more."""


@dataclass(frozen=True, slots=True)
class LogBatch:
    """A record batch.

    Attributes:
        base, last: its offsets, the last one included; some between them may have no record.
        data: its bytes, if the test has some.
        size: bytes that it counts for.
    """

    base: int
    last: int
    data: bytes = b""
    size: int = 100


@dataclass(slots=True)
class PartitionLog:
    """Record batches, ascending.

    Attributes:
        start: the log start offset: what was before is removed.
        end: the offset of the next record.
    """

    start: int = 0
    end: int = 0
    batches: list[LogBatch] = field(default_factory=list)

    def append(self, count: int, data: bytes = b"", *, size: int = 100) -> LogBatch:
        """Appends a batch of so many offsets."""
        batch = LogBatch(self.end, self.end + count - 1, data, size)
        self.batches.append(batch)
        self.end += count
        return batch

    def read(self, offset: int, max_bytes: int) -> Sequence[LogBatch]:
        """From the batch that has the offset, or the first one after it; at least one if there is one."""
        at = bisect_right(self.batches, offset, key=lambda batch: batch.base)
        at -= at > 0 and self.batches[at - 1].last >= offset
        found: list[LogBatch] = []
        for batch in self.batches[at:]:
            max_bytes -= batch.size
            if found and max_bytes < 0:
                break
            found.append(batch)
        return found

    def remove_before(self, offset: int) -> None:
        """Moves the log start offset, as DeleteRecords and retention do."""
        self.start = max(self.start, min(offset, self.end))
        self.batches = [batch for batch in self.batches if batch.last >= self.start]

    def compact(self, base: int) -> None:
        """Removes the batch that begins there; its offsets are a gap then."""
        self.batches = [batch for batch in self.batches if batch.base != base]


@dataclass(slots=True)
class StoredState:
    """What the share coordinator has of one share partition (``__share_group_state``).

    Attributes:
        start: the start offset when it was written last; None before the first time.
        states: of offsets from `start` on, with their delivery counts; those that are acquired are not there.
        outcomes: how records ended.
    """

    start: int | None = None
    states: dict[int, tuple[RecordState, int]] = field(default_factory=dict)
    outcomes: dict[int, Outcome] = field(default_factory=dict)

    def write(self, start: int, changes: dict[int, tuple[RecordState, int]]) -> None:
        """Adds changes, and forgets what is before the start offset."""
        self.states.update(changes)
        if self.start is None or start > self.start:
            self.states = {offset: kept for offset, kept in self.states.items() if offset >= start}
        self.start = start

    def batches(self) -> list[tuple[int, int, RecordState, int]]:
        """Neighbours of one state and count together: first and last offset, state, count."""
        found: list[tuple[int, int, RecordState, int]] = []
        for offset in sorted(self.states):
            state, count = self.states[offset]
            if found and found[-1][1:] == (offset - 1, state, count):
                found[-1] = (found[-1][0], offset, state, count)
            else:
                found.append((offset, offset, state, count))
        return found
