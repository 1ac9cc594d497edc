"""Chooses the partition of each record as Java's producer does. Pure; works on columns.

1. The partition that the record names, if any.
2. A record with a key: ``murmur2(key) mod partitions``. So records of one key are in one partition,
   whichever client writes them.
3. A record without a key: runs of records go to the partitions in turn, because few large batches
   cost less than many small ones (KIP-480, the sticky partitioner).
"""

from __future__ import annotations

from typing import Any

from aiokafka.partitioner import murmur2 as murmur2_of_one

from consumer_sdk.errors import ConfigurationError, MissingExtraError
from consumer_sdk.record_writes import Outgoing

try:
    import numpy as np
    import pyarrow as pa
except ModuleNotFoundError as _error:
    raise MissingExtraError(_error.name or "numpy", "spark") from _error

__all__ = ["lengths_of", "murmur2", "partitions_of"]

LEAST_RUN = 1000
"""Records without a key that go to the same partition."""
LONG_KEY = 1024
"""Bytes beyond which keys are hashed one by one: a step by all of them would be for a few."""
SEED = np.uint32(0x9747B28C)
FACTOR = np.uint32(0x5BD1E995)
SHIFT = np.uint32(24)
POSITIVE = np.uint32(0x7FFFFFFF)


def partitions_of(records: Outgoing, count: int, first: int) -> Any:
    """The partition of each record.

    Args:
        records: for a topic.
        count: how many partitions the topic has.
        first: the partition at which records without a key begin.

    Returns:
        a numpy array.

    Raises:
        ConfigurationError: a record names one that the topic does not have.
    """
    rows = len(records)
    run = max(LEAST_RUN, -(-rows // count))
    found = (np.arange(rows) // run + first) % count
    if records.keys is not None:
        by_key = (murmur2(records.keys) & POSITIVE).astype(np.int64) % count
        found = np.where(_valid(records.keys), by_key, found)
    if records.partitions is not None:
        found = np.where(_valid(records.partitions), _named(records, count), found)
    return found


def _named(records: Outgoing, count: int) -> Any:
    named = records.partitions.fill_null(0).to_numpy(zero_copy_only=False)
    wrong = named[(named < 0) | (named >= count)]
    if wrong.size:
        raise ConfigurationError(
            f"partition {wrong[0]}: topic {records.topic!r} has the partitions 0 to {count - 1}; "
            f"null lets the key choose"
        )
    return named


def murmur2(keys: Any) -> Any:
    """Java's hash of each key, as a numpy array of unsigned integers. The hash of a null key is undefined.

    Args:
        keys: a ``pyarrow`` array of binary.
    """
    starts, lengths = _places(keys)
    data = np.frombuffer(_bytes(keys) + bytes(4), np.uint8)
    words = np.ndarray(data.size - 3, "<u4", data, strides=(1,))  # one begins at each byte
    hashes = np.full(len(keys), SEED) ^ lengths.astype(np.uint32)
    short = np.flatnonzero(lengths <= LONG_KEY)
    rows, step = short, 0
    with np.errstate(over="ignore"):
        while (rows := rows[lengths[rows] >= step + 4]).size:
            _mix(hashes, rows, words[starts[rows] + step].astype(np.uint32))
            step += 4
        _finish(hashes, words, starts, lengths, short)
    for row in np.flatnonzero(lengths > LONG_KEY):
        hashes[row] = murmur2_of_one(keys[int(row)].as_py()) & 0xFFFFFFFF
    return hashes


def lengths_of(values: Any) -> Any:
    """The size of each value in bytes, as a numpy array; 0 for null."""
    return _places(values)[1]


def _mix(hashes: Any, rows: Any, word: Any) -> None:
    word = word * FACTOR
    word ^= word >> SHIFT
    hashes[rows] = (hashes[rows] * FACTOR) ^ (word * FACTOR)


def _finish(hashes: Any, words: Any, starts: Any, lengths: Any, short: Any) -> None:
    """Hashes the last one to three bytes of each key, and finishes the hash."""
    rest = (lengths % 4).astype(np.uint32)
    rows = short[rest[short] > 0]
    mask = (np.uint32(1) << (rest[rows] * np.uint32(8))) - np.uint32(1)
    tail = words[starts[rows] + lengths[rows] - rest[rows].astype(np.int64)].astype(np.uint32)
    hashes[rows] = (hashes[rows] ^ (tail & mask)) * FACTOR
    hashes ^= hashes >> np.uint32(13)
    hashes *= FACTOR
    hashes ^= hashes >> np.uint32(15)


def _places(values: Any) -> tuple[Any, Any]:
    """Where each value begins, and its length."""
    wide = pa.types.is_large_binary(values.type) or pa.types.is_large_string(values.type)
    kind = np.dtype(np.int64 if wide else np.int32)
    offsets = values.buffers()[1]
    if not len(values) or offsets is None:
        return np.zeros(len(values), np.int64), np.zeros(len(values), np.int64)
    ends = np.frombuffer(offsets, kind, len(values) + 1, values.offset * kind.itemsize)
    starts = ends[:-1].astype(np.int64)
    return starts, ends[1:] - starts


def _bytes(values: Any) -> bytes:
    data = values.buffers()[2]
    return b"" if data is None else data.to_pybytes()


def _valid(values: Any) -> Any:
    return values.is_valid().to_numpy(zero_copy_only=False)
