"""Makes columns from what a fetch brought: one record batch of the client at a time.

No object is made for a record but the client's own, in C, and that only for as long as its batch
is read. The rules are the client's: checksums, aborted transactions, control batches, gaps.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from operator import attrgetter
from typing import Any

from aiokafka.errors import CorruptRecordException
from aiokafka.record.control_record import ABORT_MARKER, ControlRecord
from aiokafka.record.memory_records import MemoryRecords

from consumer_sdk.adapters.kafka.ranges.heads import FORMAT_OF_BATCHES, heads
from consumer_sdk.range_reads import Columns, Header

__all__ = ["Columnizer", "Part", "offsets_of", "open_batches", "size_of"]

KEY, VALUE, TIMESTAMP = map(attrgetter, ("key", "value", "timestamp"))
OFFSET, HEADERS = map(attrgetter, ("offset", "headers"))
NO_TIMESTAMP = -1


def open_batches(data: bytes) -> list[Any]:
    """The client's record batches; one that is cut off at the end is left out."""
    found = []
    for some in _of_one_format(data):
        records = MemoryRecords(some)
        while records.has_next():
            found.append(records.next_batch())
    return found


def _of_one_format(data: bytes) -> list[bytes]:
    """The client takes all batches for what the first is; a log may hold several formats."""
    starts: list[int] = []
    last = None
    for head in heads(data):
        is_batch = head.magic >= FORMAT_OF_BATCHES
        if is_batch != last:
            starts.append(head.at)
            last = is_batch
    if len(starts) <= 1:
        return [data]
    return [data[at:end] for at, end in pairwise([*starts, len(data)])]


class Aborted:
    """Which batches of one fetch response belong to aborted transactions.

    Args:
        transactions: (producer, first offset) of each, as the broker lists them.
    """

    def __init__(self, transactions: Iterable[tuple[int, int]] | None) -> None:
        self._ahead = sorted(transactions or (), key=lambda one: one[1], reverse=True)
        self._producers: set[int] = set()

    def has(self, batch: Any) -> bool:
        """The batch is one of an aborted transaction; batches are asked about in order."""
        while self._ahead and self._ahead[-1][1] <= batch.base_offset:
            self._producers.add(self._ahead.pop()[0])
        if batch.is_control_batch and _is_abort(batch):
            self._producers.discard(batch.producer_id)
        return batch.is_transactional and batch.producer_id in self._producers


def _is_abort(batch: Any) -> bool:
    return any(ControlRecord.parse(record.key) == ABORT_MARKER for record in batch)


@dataclass(slots=True)
class Part:
    """Columns in the making.

    Attributes:
        timestamp_type: of all its records.
        size: bytes of keys and values, as far as somebody counts them.
    """

    timestamp_type: int | None
    positions: Sequence[int] = ()
    keys: list[bytes | None] = field(default_factory=list)
    values: list[bytes | None] = field(default_factory=list)
    timestamps: list[int | None] = field(default_factory=list)
    headers: list[Sequence[Header]] = field(default_factory=list)
    size: int = 0

    def add(self, offsets: Sequence[int], records: Sequence[Any], *, with_headers: bool) -> None:
        """Appends records of the client, at least one."""
        self.positions = _joined(self.positions, offsets)
        self.keys += map(KEY, records)
        self.values += map(VALUE, records)
        self.timestamps += _timestamps(records)
        if with_headers:
            self.headers += map(HEADERS, records)

    def columns(self) -> Columns:
        """What was added."""
        return Columns(
            self.positions,
            self.keys,
            self.values,
            self.timestamps,
            self.headers if any(self.headers) else None,
            self.timestamp_type,
        )


def _timestamps(records: Sequence[Any]) -> Iterable[int | None]:
    """Asked of the first only: a producer gives its batch timestamps, or none."""
    found = map(TIMESTAMP, records)
    if records[0].timestamp != NO_TIMESTAMP:
        return found
    return (None if timestamp == NO_TIMESTAMP else timestamp for timestamp in found)


def _joined(before: Sequence[int], after: Sequence[int]) -> Sequence[int]:
    """A range as long as both are, and meet."""
    if not before:
        return after
    if isinstance(before, range) and isinstance(after, range) and before.stop == after.start:
        return range(before.start, after.stop)
    joined: list[int] = before if isinstance(before, list) else list(before)
    joined.extend(after)  # in place: thousands of batches with gaps would cost quadratic time
    return joined


class Columnizer:
    """Turns batches into columns of the records in ``[start, stop)``.

    Args:
        start: what lies before is left out: a batch may begin earlier.
        stop: what lies at or after it is left out.
        is_committed: aborted transactions are left out.
        with_headers: headers are read.
        max_bytes: about how many bytes of keys and values a part has.
    """

    def __init__(
        self, start: int, stop: int, *, is_committed: bool, with_headers: bool, max_bytes: int
    ) -> None:
        self._start = start
        self._stop = stop
        self._is_committed = is_committed
        self._with_headers = with_headers
        self._max_bytes = max_bytes

    def columns(
        self, batches: list[Any], aborted: Iterable[tuple[int, int]] | None
    ) -> Iterator[Columns]:
        """The parts, none of them empty; empties ``batches``.

        Raises:
            CorruptRecordException: a checksum does not fit; what came before was yielded.
        """
        part: Part | None = None
        for offsets, records, size in self._read(batches, Aborted(aborted)):
            kind = records[0].timestamp_type
            if part and (part.timestamp_type != kind or part.size >= self._max_bytes):
                yield part.columns()
                part = None
            part = part or Part(kind)
            part.add(offsets, records, with_headers=self._with_headers)
            part.size += size
        if part:
            yield part.columns()

    def _read(
        self, batches: list[Any], aborted: Aborted
    ) -> Iterator[tuple[Sequence[int], list[Any], int]]:
        batches.reverse()
        while batches:
            batch = batches.pop()  # let go when it is read: it holds what it has decompressed
            if not batch.validate_crc():
                raise CorruptRecordException(f"invalid checksum before offset {batch.next_offset}")
            is_old = batch.producer_id is None  # a format that knows no transactions
            if not is_old and self._is_committed and aborted.has(batch):
                continue
            if batch.is_control_batch:
                continue
            records = list(batch)
            offsets, records = self._cut(offsets_of(records), records)
            if records:
                # The fetch limits what is not compressed: it needs no counting.
                is_plain = not is_old and not batch.compression_type
                yield offsets, records, 0 if is_plain else size_of(records)

    def _cut(self, offsets: Sequence[int], records: list[Any]) -> tuple[Sequence[int], list[Any]]:
        if offsets and offsets[0] >= self._start and offsets[-1] < self._stop:
            return offsets, records
        kept = slice(bisect_left(offsets, self._start), bisect_left(offsets, self._stop))
        return offsets[kept], records[kept]


def offsets_of(records: Sequence[Any]) -> Sequence[int]:
    """A range, unless there are gaps."""
    if not records:
        return ()
    first, last = records[0].offset, records[-1].offset
    if last - first + 1 == len(records):
        return range(first, last + 1)
    return list(map(OFFSET, records))


def size_of(records: Iterable[Any]) -> int:
    """Bytes of keys and values."""
    return sum(len(record.value or b"") + len(record.key or b"") for record in records)
