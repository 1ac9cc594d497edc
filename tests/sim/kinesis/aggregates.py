"""Records as the Kinesis Producer Library stores them, small ones only."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import md5

from consumer_sdk.adapters.kinesis.service.aggregation import MAGIC

__all__ = ["aggregate"]

SHORT = 128
"""Lengths below fit into one byte."""


def aggregate(records: Sequence[tuple[bytes, bytes]]) -> bytes:
    """An aggregate of (key, data) pairs."""
    keys = sorted({key for key, _ in records})
    table = b"".join(_field(1, key) for key in keys)
    rows = b"".join(_field(3, _record(keys.index(key), data)) for key, data in records)
    message = table + rows
    return MAGIC + message + md5(message, usedforsecurity=False).digest()


def _record(key: int, data: bytes) -> bytes:
    return bytes([1 << 3, key]) + _field(3, data)


def _field(number: int, value: bytes) -> bytes:
    assert len(value) < SHORT
    return bytes([number << 3 | 2, len(value)]) + value
