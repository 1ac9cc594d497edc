"""Columns of records as record batches, without an object for any record; pure.

A record of the format 2, whose numbers are zigzag varints::

    length of what follows | attributes 0 | time since the batch's 0 | offset since the batch's |
    length of the key, -1 of null | key | length of the value, -1 of null | value | headers

All records of a call have one timestamp. numpy encodes the numbers of whole columns, and pyarrow
joins them with keys and values. aiokafka's own builder would need objects for each record.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from aiokafka import codec
from aiokafka.record.util import calc_crc32c

from consumer_sdk.adapters.kafka.producing.partitioning import lengths_of
from consumer_sdk.errors import MissingExtraError
from consumer_sdk.record_writes import Outgoing
from consumer_sdk.records import Headers

try:
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc
except ModuleNotFoundError as _error:
    raise MissingExtraError(_error.name or "numpy", "spark") from _error

__all__ = ["HEAD_BYTES", "BatchOfBytes", "encoded_headers", "record_batches"]

HEAD = struct.Struct(">qiibIhiqqqhii")
HEAD_BYTES = HEAD.size
FORMAT = 2
CHECKSUM, CHECKSUM_AT = struct.Struct(">I"), 17
COUNTED_FROM = 12
"""The length in a head counts the bytes from here on."""
LEAST_RECORD = 7
NO_HEADERS = b"\0"
GZIP_LEVEL = 6
"""Java's; the client's 9 takes three times as long."""
CODECS: Mapping[str, tuple[int, Callable[[bytes], bytes]]] = {
    "gzip": (1, lambda data: codec.gzip_encode(data, GZIP_LEVEL)),
    "snappy": (2, codec.snappy_encode),
    "lz4": (3, codec.lz4_encode),
    "zstd": (4, codec.zstd_encode),
}
"""By their names in options → the number in a batch's attributes, and what compresses."""


@dataclass(slots=True)
class BatchOfBytes:
    """A record batch that aiokafka's sender sends. The sender calls the public methods, `_build` and `_set_producer_state`.

    Attributes:
        data: space for the header, then the encoded records.
        count: how many records it has.
        time: the timestamp of all records, in milliseconds.
        codec: the number of the compression codec; 0 for none.
    """

    data: bytearray
    count: int
    time: int
    codec: int
    producer: tuple[int, int, int] = (-1, -1, 0)

    def record_count(self) -> int:
        """How many records it has; aiokafka's sender computes sequence numbers from that."""
        return self.count

    def size(self) -> int:
        """The size of the batch in bytes."""
        return len(self.data)

    def close(self) -> None:
        """Does nothing, because no record is ever added."""

    def closed(self) -> bool:
        """True, so that aiokafka sends the batch at once."""
        return True

    def _set_producer_state(self, number: int, epoch: int, sequence: int) -> None:
        self.producer = (number, epoch, sequence)

    def _build(self) -> bytearray:
        counted = (self.codec, self.count - 1, self.time, self.time, *self.producer, self.count)
        HEAD.pack_into(self.data, 0, 0, self.size() - COUNTED_FROM, -1, FORMAT, 0, *counted)
        with memoryview(self.data) as data:
            CHECKSUM.pack_into(data, CHECKSUM_AT, calc_crc32c(data[CHECKSUM_AT + CHECKSUM.size :]))
        return self.data


def record_batches(
    records: Outgoing, partitions: Any, *, limit: int, time: int, compression: str | None
) -> Iterator[tuple[int, BatchOfBytes]]:
    """Yields each batch and its partition. The batches of a partition are in the order of the records.

    Args:
        records: for one topic.
        partitions: the partition of each.
        limit: bytes of a batch before it is compressed; a single larger record is a batch alone.
        time: the timestamp of all records, in milliseconds.
        compression: a name in `CODECS`.
    """
    if not len(records):
        return
    # Numbers of 16 bits are sorted by their digits, in a tenth of the time.
    order = partitions.astype(np.min_scalar_type(partitions.max())).argsort(kind="stable")
    rows = _Rows.of(records)
    begins, ends = _cuts(partitions[order], rows.bound(limit)[order], limit - HEAD_BYTES)
    offsets = np.empty(len(order), np.int64)
    offsets[order] = np.arange(len(order)) - np.repeat(begins, ends - begins)
    data, starts = rows.encode(offsets, order)
    for begin, end in zip(begins.tolist(), ends.tolist(), strict=True):
        number, packed = _compressed(data[int(starts[begin]) : int(starts[end])], compression)
        whole = bytearray(HEAD_BYTES) + packed
        batch = BatchOfBytes(whole, count=end - begin, time=time, codec=number)
        yield int(partitions[order[begin]]), batch


def _compressed(data: memoryview, compression: str | None) -> tuple[int, bytes | memoryview]:
    if compression is None:
        return 0, data
    number, compress = CODECS[compression]
    packed = compress(bytes(data))
    return (number, packed) if len(packed) < len(data) else (0, data)


def encoded_headers(headers: Headers) -> bytes:
    """Encodes the headers, which are the end of a record."""
    parts = [_varint(len(headers))]
    for name, value in headers:
        text = name.encode()
        parts += [_varint(len(text)), text]
        parts += [_varint(-1)] if value is None else [_varint(len(value)), bytes(value)]
    return b"".join(parts)


def _varint(number: int) -> bytes:
    rest, found = number << 1 ^ number >> 63, bytearray()
    while rest > 0x7F:  # noqa: PLR2004 - seven bits
        found.append(rest & 0x7F | 0x80)
        rest >>= 7
    found.append(rest)
    return bytes(found)


@dataclass(frozen=True, slots=True)
class _Rows:
    """Records as columns.

    Attributes:
        keys: the bytes of each key, empty for null. None if no record has a key.
        key_lengths: the length of each key, -1 for null.
        tails: the encoded headers of each record; None if no record has any.
    """

    keys: Any
    values: Any
    tails: Any
    key_lengths: Any
    value_lengths: Any
    tail_lengths: Any

    @classmethod
    def of(cls, records: Outgoing) -> _Rows:
        tails = None
        if records.headers is not None:
            tails = pa.array(map(encoded_headers, records.headers), pa.large_binary())
        none, one = np.full(len(records), -1), np.ones(len(records), np.int64)
        return cls(
            None if records.keys is None else _filled(records.keys),
            _filled(records.values),
            tails,
            none if records.keys is None else _lengths(records.keys),
            _lengths(records.values),
            one if tails is None else lengths_of(tails),
        )

    def bound(self, limit: int) -> Any:
        """The most bytes that each record takes, in a batch of that size."""
        return _whole(self._bodies(_widths(np.array(limit // LEAST_RECORD))))

    def encode(self, offsets: Any, order: Any) -> tuple[memoryview, Any]:
        """Encodes the records one after another; returns the bytes, where each record begins, and where the last one ends.

        Args:
            offsets: the offset of each record within its batch.
            order: the row of each record in the columns.
        """
        zeros = np.zeros((len(offsets), 2), np.uint8)  # attributes, and the time
        heads = _joined(
            _varints(self._bodies(_widths(offsets))),
            (zeros, zeros == 0),
            _varints(offsets),
            _varints(self.key_lengths),
        )
        keys = [] if self.keys is None else [self.keys]
        tails = pa.scalar(NO_HEADERS, pa.large_binary()) if self.tails is None else self.tails
        parts = [heads, *keys, _joined(_varints(self.value_lengths)), self.values, tails]
        joined = pc.binary_join_element_wise(*parts, pa.scalar(b"", pa.large_binary()))
        found = joined.take(pa.array(order))
        starts = np.frombuffer(found.buffers()[1], np.int64, len(found) + 1, 8 * found.offset)
        return memoryview(found.buffers()[2]), starts

    def _bodies(self, offset_widths: Any) -> Any:
        keys, values = self.key_lengths, self.value_lengths
        written = np.maximum(keys, 0) + np.maximum(values, 0) + self.tail_lengths
        return 2 + offset_widths + _widths(keys) + _widths(values) + written


def _cuts(partitions: Any, sizes: Any, limit: int) -> tuple[Any, Any]:
    """Where batches begin and end: at the end of a partition, or before a batch would be too large."""
    totals = np.concatenate([[0], np.cumsum(sizes)])
    changes = np.flatnonzero(partitions[1:] != partitions[:-1]) + 1
    ends: list[int] = []
    begin = 0
    for end in [*changes.tolist(), len(partitions)]:
        while begin < end:
            fits = int(np.searchsorted(totals, totals[begin] + limit, side="right")) - 1
            begin = min(max(fits, begin + 1), end)
            ends.append(begin)
    return np.array([0, *ends[:-1]], np.int64), np.array(ends, np.int64)


def _lengths(column: Any) -> Any:
    lengths = lengths_of(column)
    return (
        np.where(column.is_valid().to_numpy(zero_copy_only=False), lengths, -1)
        if column.null_count
        else lengths
    )


def _filled(column: Any) -> Any:
    wide = column.cast(pa.large_binary())
    return wide.fill_null(b"") if wide.null_count else wide


def _whole(bodies: Any) -> Any:
    return bodies + _widths(bodies)


def _zigzag(numbers: Any) -> Any:
    signed = numbers.astype(np.int64)
    return ((signed << 1) ^ (signed >> 63)).astype(np.uint64)


def _tables() -> tuple[Any, Any]:
    """Tables of the varints of all 16-bit numbers: their widths, and their bytes as one 32-bit number."""
    numbers = np.arange(1 << 16, dtype=np.uint32)
    widths = 1 + (numbers > 0x7F).astype(np.uint8) + (numbers > 0x3FFF)  # noqa: PLR2004 - bits
    cells = np.zeros((len(numbers), 4), np.uint8)
    for at in range(3):
        cells[:, at] = (numbers >> 7 * at & 0x7F) + 0x80 * (widths > at + 1)
    return widths, cells.view(np.uint32)[:, 0]


WIDTHS, CELLS = _tables()


def _widths(numbers: Any) -> Any:
    """How many bytes each number takes as a varint."""
    rest = _zigzag(numbers)
    if rest.max() < len(WIDTHS):
        return WIDTHS[rest].astype(np.int64)
    found = np.ones(rest.shape, np.int64)
    while (rest := rest >> np.uint64(7)).any():
        found += rest > 0
    return found


def _varints(numbers: Any) -> tuple[Any, Any]:
    """The varint of each number as a row of bytes, and which bytes of the row it uses."""
    rest = _zigzag(numbers)
    if rest.max() < len(WIDTHS):
        widths = WIDTHS[rest]
        most = int(widths.max())
        cells = CELLS[rest].view(np.uint8).reshape(len(rest), 4)
        return cells[:, :most], np.arange(most, dtype=np.uint8) < widths[:, None]
    columns, counts = [], [np.ones(len(rest), bool)]
    while True:
        more = rest > np.uint64(0x7F)
        columns.append((rest & np.uint64(0x7F)).astype(np.uint8) | (more.astype(np.uint8) << 7))
        if not more.any():
            return np.stack(columns, axis=1), np.stack(counts, axis=1)
        counts.append(more)
        rest = rest >> np.uint64(7)


def _joined(*parts: tuple[Any, Any]) -> Any:
    """Joins the used bytes of each row into a column of binary values."""
    cells = np.concatenate([cells for cells, _ in parts], axis=1)
    counts = np.concatenate([counts for _, counts in parts], axis=1)
    ends = np.concatenate([[0], np.cumsum(np.count_nonzero(counts, axis=1))])
    buffers = [None, pa.py_buffer(ends.astype(np.int64)), pa.py_buffer(cells[counts])]
    return pa.Array.from_buffers(pa.large_binary(), len(cells), buffers)
