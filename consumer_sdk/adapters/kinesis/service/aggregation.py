"""The user records inside a record of the Kinesis Producer Library. Pure.

An aggregate is ``F3 89 9A C2``, a protobuf message, and the MD5 digest of that message
(https://github.com/awslabs/amazon-kinesis-producer/blob/master/aggregation-format.md)::

    message AggregatedRecord {
      repeated string partition_key_table     = 1;
      repeated string explicit_hash_key_table = 2;
      repeated Record records                 = 3;
    }
    message Record {
      required uint64 partition_key_index     = 1;
      optional uint64 explicit_hash_key_index = 2;
      required bytes  data                    = 3;
      repeated Tag    tags                    = 4;
    }

All or nothing: what is not sound from the first byte to the last is a plain record, as it is for
Amazon's own client where the digest or the message is wrong. That client delivers a part where an
index points outside its table; here such a record is plain too, so that nothing is lost.

Every user record is delivered, also one whose hash key belongs to another shard, as happens after
a split or a merge. Amazon's client throws the *whole* aggregate away then, and counts on its own
producer to have sent it again; producers of others do not, and lose records. A duplicate is
allowed where records are delivered at least once, a loss is not.

An aggregate without records has none: Amazon's client delivers nothing either. Fields that are
not known are skipped, but for groups, which protobuf has given up: a message with one is plain.

The bounds are those of the input: a user record takes six bytes at least, and keys are shared.
"""

from __future__ import annotations

from hashlib import md5
from typing import Any

__all__ = ["MAGIC", "user_records"]

MAGIC = b"\xf3\x89\x9a\xc2"
DIGEST = 16

# Tags: the field's number, and how its value is written.
VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5
KEY_TABLE = 1 << 3 | BYTES
HASH_TABLE = 2 << 3 | BYTES
RECORDS = 3 << 3 | BYTES
KEY_INDEX = 1 << 3 | VARINT
HASH_INDEX = 2 << 3 | VARINT
DATA = 3 << 3 | BYTES

MORE = 128
"""Set in each byte of a number but its last; so a smaller byte is a number of its own."""

Found = tuple[int, int | None, bytes]
"""A user record: the index of its key, the index of its hash key, its data."""


def user_records(data: bytes) -> list[tuple[bytes, bytes]] | None:
    """The user records of a stored record, as (partition key, data), in order.

    A caller in a hot path asks ``data.startswith(MAGIC)`` first.

    Returns:
        None if this is a plain record, or an aggregate that is not sound.
    """
    if not data.startswith(MAGIC) or len(data) <= len(MAGIC) + DIGEST:
        return None
    message = data[len(MAGIC) : -DIGEST]
    if md5(message, usedforsecurity=False).digest() != data[-DIGEST:]:
        return None
    try:
        return _message(message)
    except (IndexError, ValueError):
        return None


def _message(message: bytes) -> list[tuple[bytes, bytes]]:
    """Reads an AggregatedRecord.

    Raises:
        IndexError: it is cut off, or an index points outside its table.
        ValueError: it is not sound.
    """
    keys: list[bytes] = []
    hashes: list[bytes] = []
    found: list[Any] = []  # of `Found`
    at = 0
    while at < len(message):
        tag = message[at]
        if tag not in {KEY_TABLE, HASH_TABLE, RECORDS}:
            at = _skip(message, at)
            continue
        size, at = message[at + 1], at + 2
        if size >= MORE:
            size, at = _varint(message, at - 1)
        if tag == RECORDS:
            found.append(_record(message, at, at + size))
        else:
            (keys if tag == KEY_TABLE else hashes).append(message[at : at + size])
        at += size
    if at != len(message):
        raise ValueError("the last field is cut off")
    if any(hash_ is not None and hash_ >= len(hashes) for _, hash_, _ in found):
        raise IndexError("a hash key that is not in its table")
    for place, (key, _, data) in enumerate(found):  # a table may stand behind the records
        found[place] = keys[key], data  # in place, which halves the peak of memory
    return found


def _record(message: bytes, at: int, end: int) -> Found:
    """Reads a Record, the hot path."""
    key = hash_ = data = None
    while at < end:
        tag, value = message[at], message[at + 1]
        if tag == KEY_INDEX and value < MORE:
            key = value
            at += 2
        elif tag == DATA:
            value, at = (value, at + 2) if value < MORE else _varint(message, at + 1)
            data = message[at : at + value]
            at += value
        elif tag == KEY_INDEX:
            key, at = _varint(message, at + 1)
        elif tag == HASH_INDEX:
            hash_, at = _varint(message, at + 1)
        else:
            at = _skip(message, at)
    if at != end or key is None or data is None:
        raise ValueError("a record is cut off, or has no key or no data")
    return key, hash_, data


def _varint(message: bytes, at: int) -> tuple[int, int]:
    """The number that begins at a place, and the place behind it."""
    value = 0
    for shift in range(0, 70, 7):
        byte = message[at]
        at += 1
        value |= (byte & ~MORE) << shift
        if byte < MORE:
            return value, at
    raise ValueError("a number of more than 64 bits")


def _skip(message: bytes, at: int) -> int:
    """The place behind a field that is not known."""
    tag, at = _varint(message, at)
    kind = tag & 7
    if kind == VARINT:
        return _varint(message, at)[1]
    if kind == BYTES:
        size, at = _varint(message, at)
        return at + size
    if kind in {FIXED64, FIXED32}:
        return at + (8 if kind == FIXED64 else 4)
    raise ValueError(f"no field is written as {kind}")
