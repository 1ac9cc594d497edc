"""Record batches as bytes: where each begins, and how large it becomes when it is decompressed.

All formats have their length and their format in one place::

    0 first offset (8) | 8 length of what follows (4) | 12 … (4) | 16 format (1) | …

The decompressed size of a batch is bounded, because 32 kB of zstd can hold a gigabyte of zeros. A broker's
``max.message.bytes`` (1 MiB by default) and a consumer's ``max.partition.fetch.bytes`` count compressed bytes, so they
do not bound it. For nearly all batches, the length and the codec's best ratio, or the headers of the blocks, show that
the batch is small enough. Otherwise the batch is decompressed into bounded memory, and its bytes are counted.
"""

from __future__ import annotations

import mmap
import struct
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple, TypeAlias

from aiokafka import codec

try:
    import cramjam
except ModuleNotFoundError:  # of the codecs that need it the client says what to install
    cramjam = None  # type: ignore[assignment]

__all__ = [
    "ATTRIBUTES_AT",
    "BEFORE_LENGTH",
    "CODEC",
    "FORMAT_OF_BATCHES",
    "LAST_DELTA",
    "LAST_DELTA_AT",
    "MAX_BATCH_BYTES",
    "OLD_ATTRIBUTES_AT",
    "START",
    "TRANSACTIONAL",
    "BatchHeader",
    "Doubt",
    "LargeBatchError",
    "batch_headers",
    "can_decompress",
    "check_batch",
    "decompress",
    "is_believed",
    "oversized",
    "transactions_in_doubt",
]

START = struct.Struct(">qiib")
"""First offset, length of what follows it, the leader's epoch (of an old format the checksum), format."""
BEFORE_LENGTH = 12
FORMAT_OF_BATCHES = 2
"""The format since Kafka 0.11; the older ones have single records, or one around others."""
MAX_BATCH_BYTES = 128 * 2**20
"""What a batch may have by default, decompressed: 128 times what a broker takes as one by default,
so that text and zeros fit; and, with its copy, less than the 384 MiB that Spark leaves to Python at
least."""

LENGTH_AT, MAGIC_AT, OLD_ATTRIBUTES_AT, ATTRIBUTES_AT = 8, 16, 17, 22
HEAD_BYTES = 61
CODEC, TRANSACTIONAL, CONTROL = 0x07, 0x10, 0x20
LAST_DELTA, LAST_DELTA_AT = struct.Struct(">i"), 23
PRODUCER, PRODUCER_AT = struct.Struct(">q"), 43
STEP = 1 << 17
ZSTD_MAGIC, ZSTD_BLOCK, ZSTD_RAW, ZSTD_RLE = 0xFD2FB528, 1 << 17, 0, 1
SKIPPABLE = range(0x184D2A50, 0x184D2A60)
XERIAL = b"\x82SNAPPY\0"
XERIAL_HEAD = 16


class BatchHeader(NamedTuple):
    """A batch's place.

    Attributes:
        at: its first byte.
        end: the byte after its last, which need not be there.
        magic: its format, 0, 1 or 2.
    """

    at: int
    end: int
    magic: int


def batch_headers(data: bytes) -> Iterator[BatchHeader]:
    """The header of each batch, as far as it is there."""
    at = 0
    while at + START.size <= len(data):
        _offset, length, _middle, magic = START.unpack_from(data, at)
        yield BatchHeader(at, at + BEFORE_LENGTH + length, magic)
        at += BEFORE_LENGTH + max(length, START.size - BEFORE_LENGTH)


Doubt: TypeAlias = frozenset[tuple[int, int]]
"""Producer of each transaction in doubt, and where the first of its batches begins in an answer."""


def transactions_in_doubt(data: bytes, aborted: Sequence[tuple[int, int]], stable: int) -> Doubt:
    """The transactions inside of which an answer ends, and which it does not say to be aborted.

    An answer that ends with a whole batch, below the last stable offset, ends where a segment of the log ends. Then it may not
    be the truth (seen on Kafka 4.3.1). The broker finds aborted transactions in the segments that their markers lie in:

    1. a fetch begins to read segment A, which ends inside of a transaction whose marker, in B, aborts it; 2. the log cleaner puts one
    segment in the place of A and B; 3. the fetch goes on to the segment that follows A, which is C by now, and finds nothing there.

    A later answer is of the new segment, and right: see `is_believed`.

    Args:
        stable: the last stable offset. Nothing behind it is cleaned.
    """
    at, end, last_markers, begun = 0, stable, dict[int, int](), dict[int, int]()
    while at + PRODUCER_AT + PRODUCER.size <= len(data):
        first, length, _epoch, magic = START.unpack_from(data, at)
        end = first + 1
        if magic >= FORMAT_OF_BATCHES:
            end += LAST_DELTA.unpack_from(data, at + LAST_DELTA_AT)[0]
        if magic >= FORMAT_OF_BATCHES and (kind := data[at + ATTRIBUTES_AT]) & TRANSACTIONAL:
            (producer,) = PRODUCER.unpack_from(data, at + PRODUCER_AT)
            if kind & CONTROL:
                last_markers[producer] = first
                begun.pop(producer, None)
            else:
                begun.setdefault(producer, first)
        at += BEFORE_LENGTH + max(length, START.size - BEFORE_LENGTH)
    if at != len(data) or end >= stable:
        return frozenset()  # it ends where the bytes were enough, or where all is read
    told = {
        producer
        for producer, first in aborted
        if last_markers.get(producer, -1) < first <= begun.get(producer, -1)
    }
    return frozenset(one for one in begun.items() if one[0] not in told)


def is_believed(doubt: Doubt, before: Doubt | None) -> bool:
    """Whether an answer counts.

    It does if another one has left the same transactions open. Twice in doubt is not enough: a transaction that was committed
    makes the first answer doubtful, and the second may be the one that leaves out another one.

    Args:
        before: what the answer before it to the same question has left in doubt; None: there was none.
    """
    return not doubt or (before is not None and doubt <= before)


# -- what a batch becomes ---------------------------------------------------------------------


class LargeBatchError(Exception):
    """A batch holds more than it may."""


class Codec(NamedTuple):
    """A way to compress.

    Attributes:
        ratio: no byte becomes more than so many.
        bound: bytes that some data becomes at most, by what its blocks say.
        counts: whether data becomes more than so many bytes.
    """

    name: str
    ratio: int
    bound: Callable[[bytes], int]
    exceeds: Callable[[bytes, int], bool]
    is_there: Callable[[], bool]
    decode: Callable[[bytes], bytes]


def decompress(kind: int, data: bytes) -> bytes:
    """What a codec, by its number in Kafka, makes of the bytes; raises whatever it does."""
    return CODECS[kind].decode(data) if kind else bytes(data)


def can_decompress(kind: int) -> bool:
    """Whether the codec's library is there."""
    return not kind or (kind in CODECS and CODECS[kind].is_there())


def oversized(data: bytes, most: int) -> tuple[int, LargeBatchError] | None:
    """Where the first batch begins that holds too much, and the error that says so.

    Args:
        data: record batches of any format, as they are on the wire; the last may be cut off.
        most: bytes that each may have, decompressed.
    """
    at, end = 0, BEFORE_LENGTH
    while at + ATTRIBUTES_AT < len(data):
        end = at + BEFORE_LENGTH + int.from_bytes(data[at + LENGTH_AT : at + BEFORE_LENGTH])
        if not at + ATTRIBUTES_AT < end <= len(data):
            break  # cut off, or nothing that the client could read
        is_old = data[at + MAGIC_AT] < FORMAT_OF_BATCHES
        if data[at + (OLD_ATTRIBUTES_AT if is_old else ATTRIBUTES_AT)] & CODEC:
            try:
                check_batch(data[at:end], most)
            except LargeBatchError as error:
                return at, error
        at = end
    return None


def check_batch(data: bytes, most: int) -> None:
    """Sees that one batch holds no more than it may.

    One that is damaged passes: its codec ends where the count did, with what it finds wrong.

    Raises:
        LargeBatchError: it does; says what to do.
    """
    kind, start = _place(data)
    if not kind or not can_decompress(kind):
        return
    found, payload = CODECS[kind], data[start:]
    if len(payload) * found.ratio <= most or not _exceeds(found, payload, most):
        return
    raise LargeBatchError(
        f"the batch at offset {int.from_bytes(data[:LENGTH_AT])} holds more than {most} bytes, in "
        f"{len(payload)} bytes of {found.name}: raise max_batch_bytes= to read it"
    )


def _exceeds(found: Codec, payload: bytes, most: int) -> bool:
    try:
        if found.bound(payload) <= most:
            return False
    except (IndexError, ValueError):  # not as the format says: the codec has the last word
        pass
    try:
        return found.exceeds(payload, most)
    except Exception:  # noqa: BLE001 - codecs raise whatever they like; see `check_batch`
        return False


def _place(data: bytes) -> tuple[int, int]:
    """The codec of a batch, and where its compressed bytes begin."""
    if data[MAGIC_AT] >= FORMAT_OF_BATCHES:
        return data[ATTRIBUTES_AT] & CODEC, HEAD_BYTES
    at = OLD_ATTRIBUTES_AT + 1 + 8 * data[MAGIC_AT]  # the second old format has a time
    key = int.from_bytes(data[at : at + 4], signed=True)
    return data[OLD_ATTRIBUTES_AT] & CODEC, at + 4 + max(key, 0) + 4


# -- what blocks say --------------------------------------------------------------------------


def _unknown(_data: bytes) -> int:
    raise ValueError("nothing but decompressing tells")


def _snappy_size(data: bytes) -> int:
    """What its blocks say that they become, up to a damaged one, where the codec ends."""
    total = 0
    with suppress(cramjam.DecompressionError):
        for block in _snappy_blocks(data):
            total += int(cramjam.snappy.decompress_raw_len(block))
    return total


def _snappy_blocks(data: bytes) -> Iterator[bytes]:
    """As Java frames them, or one alone.

    Raises:
        LargeBatchError: a size is negative: the client would go back, and maybe for ever.
    """
    if not data.startswith(XERIAL):
        yield data
        return
    at = XERIAL_HEAD
    while at < len(data):
        size = int.from_bytes(data[at : at + 4], signed=True)
        if size < 0:
            raise LargeBatchError("a block of snappy has a negative size: it might never end")
        yield data[at + 4 : at + 4 + size]
        at += 4 + size


def _zstd_bound(data: bytes) -> int:
    """RFC 8878: a block says what it is, and has 128 KiB at most."""
    total = at = 0
    while at < len(data):
        magic = _little(data, at, 4)
        if magic in SKIPPABLE:
            at += 8 + _little(data, at + 4, 4)
            continue
        if magic != ZSTD_MAGIC:
            raise ValueError("no frame")
        descriptor = data[at + 4]
        is_single = descriptor >> 5 & 1
        at += 6 - is_single + (0, 1, 2, 4)[descriptor & 3] + (is_single, 2, 4, 8)[descriptor >> 6]
        size, at = _zstd_blocks(data, at)
        total += size
        at += 4 * (descriptor >> 2 & 1)  # its checksum
    return total


def _zstd_blocks(data: bytes, at: int) -> tuple[int, int]:
    """Bytes of a frame's blocks at most, and where they end."""
    total = 0
    while True:
        head = _little(data, at, 3)
        kind, size = head >> 1 & 3, head >> 3
        total += size if kind in (ZSTD_RAW, ZSTD_RLE) else ZSTD_BLOCK
        at += 3 + (1 if kind == ZSTD_RLE else size)
        if head & 1:
            return total, at


def _little(data: bytes, at: int, size: int) -> int:
    if at + size > len(data):
        raise ValueError("cut off")
    return int.from_bytes(data[at : at + size], "little")


# -- counting ---------------------------------------------------------------------------------


def _gzip_exceeds(data: bytes, most: int) -> bool:
    while data:
        member = zlib.decompressobj(16 + zlib.MAX_WBITS)
        while not member.eof:
            made = member.decompress(data, STEP)
            data, most = member.unconsumed_tail, most - len(made)
            if most < 0:
                return True
            if not made and not data and not member.eof:
                return False  # cut off
        data = member.unused_data.lstrip(b"\0")
    return False


def _counting(name: str) -> Callable[[bytes, int], bool]:
    def exceeds(data: bytes, most: int) -> bool:
        into: Any = getattr(cramjam, name).decompress_into
        with mmap.mmap(-1, most) as room:  # pages that nothing is written to take no memory
            try:
                into(data, room)
            except cramjam.DecompressionError as error:
                return "whole buffer" in str(error)  # any other ends the codec at the same place
        return False

    return exceeds


def _declared(data: bytes, most: int) -> bool:
    """Snappy makes room for what is declared before it looks at anything else."""
    return _snappy_size(data) > most


CODECS: Mapping[int, Codec] = {
    1: Codec("gzip", 1032, _unknown, _gzip_exceeds, codec.has_gzip, codec.gzip_decode),
    # Not the 22 that it can do: a false size alone would take the memory.
    2: Codec("snappy", 1 << 32, _snappy_size, _declared, codec.has_snappy, codec.snappy_decode),
    3: Codec("lz4", 255, _unknown, _counting("lz4"), codec.has_lz4, codec.lz4_decode),
    4: Codec("zstd", 1 << 15, _zstd_bound, _counting("zstd"), codec.has_zstd, codec.zstd_decode),
}
"""By their numbers in Kafka."""
