"""Columns straight from the bytes of record batches: no object is made for any record.

A record (format 2) begins with its length, so the beginning of the next record is known only after reading it.
Consecutive records of one size are found at once, by comparing bytes one size further on. If sizes differ from one
record to the next, a loop in Python would cost more than aiokafka's objects. The rest is read for all records together:
numpy reads the numbers, and Arrow copies keys and values out of the batch, which it treats as a binary array whose
every second element is the space between.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from consumer_sdk.adapters.kafka.decoding.record_batches import can_decompress, decompress
from consumer_sdk.adapters.kafka.ranges.record_decoder import NO_TIMESTAMP
from consumer_sdk.range_reads import ArrowColumn, Columns

try:
    import numpy as np
    import pyarrow as pa
except ModuleNotFoundError:  # they come with Spark's extra
    np = pa = None  # type: ignore[assignment]

HAS_ARROW = pa is not None

__all__ = ["Stored", "can_read", "read_columns"]

HEAD_BYTES = 61
COUNT_AT = 57
LOG_APPEND_TIME = 1
MOST_BYTES = 2**31 - 1
MORE = 0x80
"""In a byte of a number: another one follows. The other bits are the number's next seven."""
MOST_BITS = 63
FEWEST = 64
"""Records of a batch, and of one size in a row: with fewer, the client's objects cost less."""
SHORT_RUNS = 4
"""That a batch may have: where offsets and times become longer numbers, and at its end."""
GROWTH = 8
"""Of what is compared, while it is all alike."""


class UnlikeError(Exception):
    """Sizes differ too often."""


@dataclass(frozen=True, slots=True)
class Stored:
    """A record batch of format 2.

    Attributes:
        batch: the client's, which knows what its head says.
        count: its records.
        records: their bytes, no longer compressed.
        data: its bytes as they are on the wire, which the client's batch holds anyway.
    """

    batch: Any
    count: int
    records: bytes | memoryview
    data: bytes

    @property
    def size(self) -> int:
        """Bytes."""
        return len(self.records)

    @classmethod
    def of(cls, batch: Any, data: bytes) -> Stored:
        """A batch and its bytes as they are on the wire; raises whatever the codec does."""
        records: bytes | memoryview = memoryview(data)[HEAD_BYTES:]
        if batch.compression_type:
            records = decompress(batch.compression_type, bytes(records))
        return cls(batch, _count(data), records, data)


def can_read(batch: Any, data: bytes) -> bool:
    """Whether it is worth trying; of a codec that is missing the client says what to do."""
    return HAS_ARROW and can_decompress(batch.compression_type) and _count(data) >= FEWEST


def _count(data: bytes) -> int:
    return int.from_bytes(data[COUNT_AT:HEAD_BYTES])


def read_columns(stored: Sequence[Stored], *, with_headers: bool) -> Columns | None:
    """All records of some batches of one timestamp type, in order.

    None: this cannot read them. Their sizes differ too often, one has headers that are wanted, or
    is not what the format says.
    """
    try:
        return _columns(stored, with_headers=with_headers)
    except (UnlikeError, IndexError, ValueError, OverflowError, TypeError):
        return None


def _columns(stored: Sequence[Stored], *, with_headers: bool) -> Columns | None:
    data = b"".join([each.records for each in stored])
    if len(data) > MOST_BYTES:
        return None
    view = np.frombuffer(data, np.uint8)
    starts, ends = _places(view, stored)
    times, at = _varints(view, starts + 1)  # behind a byte of attributes
    offsets, at = _varints(view, at)
    keys, at = _cells(view, at)
    values, at = _cells(view, at)
    headers, at = _varints(view, at)
    is_whole = (headers == 0) & (at == ends)
    if not with_headers:
        is_whole |= (headers > 0) & (at < ends)
    if not is_whole.all():
        return None
    counts = [each.count for each in stored]
    offsets += np.repeat([each.batch.base_offset for each in stored], counts)
    kind = stored[0].batch.timestamp_type
    if kind == LOG_APPEND_TIME:
        times = np.repeat([each.batch.max_timestamp for each in stored], counts)
    else:
        times += np.repeat([each.batch.first_timestamp for each in stored], counts)
    return Columns(
        _positions(offsets),
        _binary(data, *keys),
        _binary(data, *values),
        ArrowColumn(pa.array(times, pa.int64(), mask=times == NO_TIMESTAMP)),
        None,
        kind,
    )


def _places(view: Any, stored: Sequence[Stored]) -> tuple[Any, Any]:
    """Where each record begins, behind its size, and ends."""
    found: list[tuple[Any, Any]] = []
    at = 0
    for each in stored:
        found += _in_batch(view, at, each.count)
        at += len(each.records)
        if found[-1][1][-1] != at:
            raise ValueError("records do not fill their batch")
    starts, ends = zip(*found, strict=True)
    return np.concatenate(starts), np.concatenate(ends)


def _in_batch(view: Any, at: int, count: int) -> Iterator[tuple[Any, Any]]:
    done = runs = 0
    while done < count:
        starts, ends = _run(view, at, count - done)
        yield starts, ends
        done, runs, at = done + len(starts), runs + 1, int(ends[-1])
        if (runs - SHORT_RUNS) * FEWEST > done:
            raise UnlikeError


def _run(view: Any, at: int, most: int) -> tuple[Any, Any]:
    """The records of the first one's size that follow one another."""
    size, begin = _varint(view, at)
    head, stride = begin - at, begin - at + size
    rows = min(most, (len(view) - at) // stride)
    count, some = 0, FEWEST
    while count == 0 or (count == some < rows):
        some = min(rows, some * GROWTH)  # not all at once: of many runs, each would look at all
        heads = view[at : at + some * stride].reshape(some, stride)[:, :head]
        # Each is a record's head, because those before it were.
        is_same = (heads == heads[0]).all(axis=1)
        count = some if is_same.all() else int(is_same.argmin())
    starts = np.arange(begin, begin + count * stride, stride)
    return starts, starts + size


def _varint(view: Any, at: int) -> tuple[int, int]:
    """A size, and what lies behind it."""
    value = shift = 0
    while True:
        byte = int(view[at])
        at += 1
        value |= (byte & (MORE - 1)) << shift
        if not byte & MORE:
            break
        shift += 7
    if value & 1:
        raise ValueError("a negative size")
    return value >> 1, at


def _varints(view: Any, at: Any) -> tuple[Any, Any]:
    """The zigzag numbers at all these places, and the places behind them."""
    byte = view[at]
    at = at + 1
    value = (byte & (MORE - 1)).astype(np.uint64)
    longer, shift = np.flatnonzero(byte & MORE), 7
    while len(longer):
        byte = view[at[longer]]
        at[longer] += 1
        value[longer] |= (byte & (MORE - 1)).astype(np.uint64) << shift
        longer, shift = longer[(byte & MORE) != 0], shift + 7
        if shift > MOST_BITS and len(longer):
            raise ValueError("a number of more than 64 bits")
    return ((value >> 1) ^ (~(value & 1) + 1)).view(np.int64), at


def _cells(view: Any, at: Any) -> tuple[tuple[Any, Any, Any], Any]:
    """Where bytes begin and end, and which are null; and the places behind them."""
    sizes, starts = _varints(view, at)
    ends = starts + np.maximum(sizes, 0)
    return (starts, ends, sizes < 0), ends


def _binary(data: bytes, starts: Any, ends: Any, is_null: Any) -> ArrowColumn[bytes]:
    bounds = np.zeros(2 * len(starts) + 1, np.int32)
    bounds[1::2], bounds[2::2] = starts, ends
    buffers = [None, pa.py_buffer(bounds), pa.py_buffer(data)]
    all_of_it = pa.Array.from_buffers(pa.binary(), 2 * len(starts), buffers)
    wanted = pa.array(np.arange(1, 2 * len(starts), 2, dtype=np.int32), mask=is_null)
    return ArrowColumn(all_of_it.take(wanted))


def _positions(offsets: Any) -> Sequence[int]:
    first, last = int(offsets[0]), int(offsets[-1])
    if last - first + 1 == len(offsets):
        return range(first, last + 1)
    found: list[int] = offsets.tolist()
    return found
