"""One partition's records in memory: a log with gaps, retention and compaction."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable
from itertools import accumulate, takewhile
from typing import NamedTuple

from consumer_sdk.records import Headers

__all__ = ["Entry", "PartitionLog", "Slice", "StoredRecord"]


class StoredRecord(NamedTuple):
    """A record as the broker keeps it; ``timestamp`` is in milliseconds."""

    key: bytes | None
    value: bytes | None
    headers: Headers
    timestamp: int

    @property
    def size(self) -> int:
        """Bytes of key and value."""
        return len(self.key or b"") + len(self.value or b"")


class Slice(NamedTuple):
    """Consecutive records, their bytes, and where the next read starts."""

    positions: list[int]
    records: list[StoredRecord]
    next_position: int
    size: int


class Entry(NamedTuple):
    """Records that were stored together, as a Pulsar producer's batch is.

    Subscriptions get, and forget, them as one. ``first`` names the entry.
    """

    first: int
    positions: list[int]
    records: list[StoredRecord]


class PartitionLog:
    """Records at growing positions; positions without a record are gaps.

    Attributes:
        start: the lowest position that can be read.
        end: the position that the next record gets.
        listeners: called, without arguments, when the log has grown.
        unreadable: positions whose records no consumer can read.
        withheld: positions whose records a subscription's consumers drop without a word, as Pulsar's
            client does with what it cannot decrypt; they come again after a reconnect.
    """

    def __init__(self) -> None:
        self.start = 0
        self.end = 0
        self.listeners: list[Callable[[], None]] = []
        self.unreadable: set[int] = set()
        self.withheld: set[int] = set()
        # Parallel lists: a read is two slices, whatever the gaps. _ends holds running byte
        # counts, so that a byte limit is a bisection.
        self._positions: list[int] = []
        self._records: list[StoredRecord] = []
        self._ends: list[int] = []
        self._entry_of: dict[int, int] = {}  # those that share an entry: position → the first

    def append(self, records: Iterable[StoredRecord], *, is_entry: bool = False) -> range:
        """Stores records, each an entry of its own or all in one; returns their positions."""
        first = self.end
        size = self._ends[-1] if self._ends else 0
        for record in records:
            size += record.size
            self._positions.append(self.end)
            self._records.append(record)
            self._ends.append(size)
            self.end += 1
        if is_entry:
            self._entry_of.update(dict.fromkeys(range(first, self.end), first))
        self._notify()
        return range(first, self.end)

    def skip(self, count: int) -> None:
        """Moves the end without a record, as a transaction marker does."""
        self.end += count
        self._notify()

    def remove(self, positions: Iterable[int]) -> None:
        """Takes single records out, as compaction does."""
        gone = set(positions)
        kept = [
            (p, r) for p, r in zip(self._positions, self._records, strict=True) if p not in gone
        ]
        self._positions = [position for position, _ in kept]
        self._records = [record for _, record in kept]
        self._ends = list(accumulate(record.size for record in self._records))

    def truncate(self, before: int) -> None:
        """Drops all records below ``before``, as retention does."""
        self.start = max(self.start, min(before, self.end))
        count = bisect_left(self._positions, self.start)
        # The running counts stay as they are: only their differences are used.
        del self._positions[:count], self._records[:count], self._ends[:count]

    def read(self, position: int, max_records: int, max_bytes: int) -> Slice:
        """The records from ``position`` on; at least one if there is any.

        One that cannot be read comes alone.
        """
        first = bisect_left(self._positions, position)
        last = min(first + max_records, len(self._positions))
        if first >= last:
            return Slice([], [], self.end if max_records else position, 0)
        before = self._ends[first] - self._records[first].size
        last = max(first + 1, bisect_right(self._ends, before + max_bytes, first, last))
        if self.unreadable:
            last = first + (self.readable(self._positions[first:last]) or 1)
        next_position = self.end if last == len(self._positions) else self._positions[last - 1] + 1
        return Slice(
            self._positions[first:last],
            self._records[first:last],
            next_position,
            self._ends[last - 1] - before,
        )

    def readable(self, positions: Iterable[int]) -> int:
        """How many of these come before the first one that cannot be read."""
        return sum(1 for _ in takewhile(lambda at: at not in self.unreadable, positions))

    def place(self, position: int) -> tuple[int, int]:
        """The entry that a position belongs to, and its index in it."""
        entry = self._entry_of.get(position, position)
        return entry, position - entry

    def entry_at(self, position: int) -> Entry | None:
        """The first entry that has a record at or after a position, with those records."""
        first = bisect_left(self._positions, position)
        if first == len(self._positions):
            return None
        name = self.place(self._positions[first])[0]
        last = first + 1
        while last < len(self._positions) and self.place(self._positions[last])[0] == name:
            last += 1
        return Entry(name, self._positions[first:last], self._records[first:last])

    def count_from(self, position: int) -> int:
        """How many records are stored at or after a position."""
        return len(self._positions) - bisect_left(self._positions, position)

    def at_time(self, milliseconds: float) -> int | None:
        """The first position stored at or after a time, or None."""
        pairs = zip(self._positions, self._records, strict=True)
        return next((p for p, record in pairs if record.timestamp >= milliseconds), None)

    def stored(self) -> dict[int, StoredRecord]:
        """All records, by position."""
        return dict(zip(self._positions, self._records, strict=True))

    def _notify(self) -> None:
        for listener in self.listeners:
            listener()
