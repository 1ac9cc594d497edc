"""Decodes a record batch record by record, if a part of it cannot be read. Pure.

aiokafka reads a batch from its beginning and stops at the first bad record. Here each record is read by itself, from
the bytes of a fetch response. If the checksum fits, the batch's header and the sizes of the records can be trusted. If
it does not, the whole batch is unreadable, and its end is trusted only if the header says it twice, or if the next
batch begins there. With a wrong end, records after it would be lost.
"""

from __future__ import annotations

import struct
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import NamedTuple, TypeAlias

from aiokafka.errors import CorruptRecordException
from aiokafka.record.memory_records import MemoryRecords
from aiokafka.record.util import calc_crc32c, decode_varint

from consumer_sdk.adapters.kafka.decoding.record_batches import (
    FORMAT_OF_BATCHES,
    MAX_BATCH_BYTES,
    batch_headers,
    check_batch,
    decompress,
)
from consumer_sdk.errors import UnreadableRecordError
from consumer_sdk.records import Assignment, Message

__all__ = ["Salvaged", "Unreadable", "salvage", "unknown", "unreadable_error"]

HEAD = struct.Struct(">qiibIhiqqqhii")
"""Base offset, length, leader's epoch, format, checksum, attributes, last offset's distance, first
and last time, producer's id, epoch and sequence, count."""
CHECKED_FROM = 21
LENGTH_AT, ATTRIBUTES_AT, COUNT_AT = 8, 21, 57
BEFORE_LENGTH = 12
CODEC = 0x07


class Unreadable(NamedTuple):
    """A record, or a whole batch, that cannot be read.

    Attributes:
        last: its last offset; None where that is not known.
        raw: its bytes, as they are in the log; a compressed batch's record no longer compressed.
    """

    first: int
    last: int | None
    raw: bytes
    error: Exception


Item: TypeAlias = Message | Unreadable


class Salvaged:
    """What a batch holds, one after another; takes the place of an `Unpacker`.

    Args:
        end: the offset behind the batch.

    Attributes:
        next_fetch_offset: see `Unpacker`; so with the others.
        is_empty: nothing is left.
    """

    def __init__(self, position: int, items: Iterable[Item], end: int) -> None:
        self._items = deque(items)
        self._end = end
        self.next_fetch_offset = position
        self.is_empty = False

    def take(
        self, assignment: Assignment, max_records: int, max_bytes: int
    ) -> tuple[list[Message], int]:
        """The next messages up to what cannot be read, and their size in bytes."""
        messages: list[Message] = []
        size = 0
        while len(messages) < max_records and size < max_bytes and self._items:
            message = self._items[0]
            if isinstance(message, Unreadable):
                break
            message.assignment = assignment
            messages.append(message)
            size += message.size
            self.pass_by(message.position + 1)
        if not self._items:
            self.is_empty = True
            self.next_fetch_offset = max(self.next_fetch_offset, self._end)
        return messages, size

    @property
    def unreadable(self) -> Unreadable | None:
        """What comes next, if that cannot be read."""
        item = self._items[0] if self._items else None
        return item if isinstance(item, Unreadable) else None

    def pass_by(self, behind: int) -> None:
        """Goes on behind what comes next."""
        self._items.popleft()
        self.next_fetch_offset = behind


def salvage(
    data: bytes,
    position: int,
    highwater: int = sys.maxsize,
    most: int = MAX_BATCH_BYTES,
    skips: Callable[[bytes], bool] = lambda _raw: False,
) -> Salvaged | None:
    """The batch that holds a position.

    Args:
        data: a fetch response's record batches, from that one on.
        highwater: the high watermark that the response tells; no batch reaches beyond it.
        most: bytes that a batch may have, decompressed.
        skips: says of a batch whose checksum fits that nobody wants to read it.

    Returns:
        None: all of it can be read, or need not be.
    """
    found = list(islice(batch_headers(data), 2))
    if not found:
        return unknown(position, data, CorruptRecordException("its head is cut off"))
    first = found[0]
    least = HEAD.size if first.magic >= FORMAT_OF_BATCHES else CHECKED_FROM
    if not least <= first.end <= len(data):
        return unknown(position, data, CorruptRecordException("its length is wrong"))
    raw = data[: first.end]
    if first.magic < FORMAT_OF_BATCHES:
        return _message_set(raw, position, most)
    next_raw = data[found[1].at : found[1].end] if found[1:] else b""
    if _is_sound(raw) and skips(raw):
        return None
    return _batch(raw, next_raw, position, highwater, most)


def unknown(position: int, raw: bytes, error: Exception) -> Salvaged:
    """Nothing can be read, and nobody knows where that ends."""
    return Salvaged(position, [Unreadable(position, None, raw, error)], position)


def unreadable_error(where: str, found: Unreadable, way_on: str) -> UnreadableRecordError:
    """What is told of it, with the cause.

    Args:
        where: what was being done, with the topic and the partition.
        way_on: what to do besides repairing the log, where nobody knows how far it reaches.
    """
    first, last = found.first, found.last
    reason = f"{type(found.error).__name__}: {found.error}"
    what = f"offset {first}" if first == last else f"the offsets {first} to {last}"
    text = f"{where}: {what} cannot be read, also when fetched again ({reason})"
    if last is None:
        text = (
            f"{where}: what is stored at offset {first} cannot be read, also when it is fetched "
            f"again ({reason}), and how far it reaches is not known: repair the log, or {way_on}"
        )
    error = UnreadableRecordError(text)
    error.__cause__ = found.error
    return error


# -- batches: format 2 ----------------------------------------------------------------------


def _batch(
    raw: bytes, next_raw: bytes, position: int, highwater: int, most: int
) -> Salvaged | None:
    base, end = _bounds(raw)
    if not _is_sound(raw):
        error = CorruptRecordException("its checksum does not fit")
        if end <= position or not _is_confirmed(raw, next_raw, highwater):
            return unknown(position, raw, error)
        return Salvaged(position, [Unreadable(max(position, base), end - 1, raw, error)], end)
    items = list(_items(raw, most))
    if end <= position or not any(isinstance(item, Unreadable) for item in items):
        return None
    return Salvaged(position, _from(items, position), end)


def _from(items: Iterable[Item], position: int) -> Iterator[Item]:
    """What lies at a position or after it."""
    for item in items:
        if isinstance(item, Message):
            if item.position >= position:
                yield item
        elif item.last is not None and item.last >= position:
            yield item._replace(first=max(item.first, position))


def _bounds(raw: bytes) -> tuple[int, int]:
    """The first offset, and the one behind the last."""
    found = HEAD.unpack_from(raw)
    return found[0], found[0] + found[6] + 1


def _is_sound(raw: bytes) -> bool:
    return bool(HEAD.unpack_from(raw)[4] == calc_crc32c(raw[CHECKED_FROM:]))


def _is_confirmed(raw: bytes, next_raw: bytes, highwater: int) -> bool:
    """The end is where the count says too, as it is if nothing was compacted, or the next begins.

    The count says how long the batch is, not where it lies: that, no checksum covers. So the end
    counts only up to where the next batch begins, or to where the log ends.
    """
    base, end = _bounds(raw)
    count = HEAD.unpack_from(raw)[-1]
    is_there = len(next_raw) >= HEAD.size
    limit = _bounds(next_raw)[0] if is_there else highwater
    begins_there = is_there and end == limit and _is_sound(next_raw)
    return base < end <= limit and (end - base == count or begins_there)


def _items(raw: bytes, most: int) -> Iterator[Item]:
    """Each record; where they cannot be told apart, what is left of the batch."""
    reached, end = _bounds(raw)
    try:
        for offset, record in _records(raw, most):
            yield _read(raw, offset, record)
            reached = offset + 1
    except Exception as error:  # noqa: BLE001 - codecs raise whatever they like
        if reached < end:  # else bytes are left behind the last record, and none is missing
            yield Unreadable(reached, end - 1, raw, error)


def _records(raw: bytes, most: int) -> Iterator[tuple[int, bytes]]:
    """Offset and bytes of each.

    Raises:
        ValueError: they do not fill the batch.
        LargeBatchError: there are more bytes of them than there may be.
    """
    base, *_middle, count = HEAD.unpack_from(raw)
    check_batch(raw, most)
    payload = decompress(raw[ATTRIBUTES_AT + 1] & CODEC, raw[HEAD.size :])
    at = 0
    for _ in range(count):
        size, start = decode_varint(payload, at)
        end = start + size
        if not start < end <= len(payload):
            raise ValueError(f"a record of {size} bytes where {len(payload) - start} are left")
        _time, place = decode_varint(payload, start + 1)  # behind a byte of attributes
        distance, _place = decode_varint(payload, place)
        yield base + distance, bytes(payload[at:end])
        at = end
    if at != len(payload):
        raise ValueError(f"{len(payload) - at} bytes are left behind {count} records")


def _read(raw: bytes, offset: int, record: bytes) -> Item:
    """Reads a record as the only one of its batch."""
    head = bytearray(raw[: HEAD.size])
    struct.pack_into(">i", head, LENGTH_AT, HEAD.size - BEFORE_LENGTH + len(record))
    head[ATTRIBUTES_AT + 1] &= ~CODEC
    struct.pack_into(">i", head, COUNT_AT, 1)
    try:
        (message,) = _messages(bytes(head) + record)
    except Exception as error:  # noqa: BLE001 - the client's, or of its decoding of names
        return Unreadable(offset, offset, record, error)
    return message


def _messages(raw: bytes) -> list[Message]:
    """What the client makes of a batch; of no assignment yet."""
    found = []
    for record in MemoryRecords(raw).next_batch():
        message = Message()
        message.position = record.offset
        message.key = record.key
        message.value = record.value
        message.headers = record.headers or ()
        message.timestamp = record.timestamp
        found.append(message)
    return found


# -- message sets: formats 0 and 1 ----------------------------------------------------------


def _message_set(raw: bytes, position: int, most: int) -> Salvaged | None:
    """A record, or several that are compressed together; its offset is the last one's."""
    last: int = struct.unpack_from(">q", raw)[0]
    try:
        is_sound = MemoryRecords(raw).next_batch().validate_crc()
        check_batch(raw, most)
        if is_sound and _messages(raw):
            return None
        error: Exception = CorruptRecordException("its checksum does not fit")
    except Exception as failure:  # noqa: BLE001 - codecs raise whatever they like
        error = failure
    if last < position:
        return unknown(position, raw, error)
    return Salvaged(position, [Unreadable(position, last, raw, error)], last + 1)
