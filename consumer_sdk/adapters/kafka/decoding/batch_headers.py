"""Where record batches begin, of any format: all have their length and format in one place.

::

    0 first offset (8) | 8 length of what follows (4) | 12 … (4) | 16 format (1) | …
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import NamedTuple

__all__ = ["FORMAT_OF_BATCHES", "Head", "heads"]

START = struct.Struct(">qiib")
BEFORE_LENGTH = 12
FORMAT_OF_BATCHES = 2
"""The format since Kafka 0.11; the older ones have single records, or one around others."""


class Head(NamedTuple):
    """A batch's place.

    Attributes:
        at: its first byte.
        end: the byte after its last, which need not be there.
        magic: its format, 0, 1 or 2.
    """

    at: int
    end: int
    magic: int


def heads(data: bytes) -> Iterator[Head]:
    """Of each batch whose head is there."""
    at = 0
    while at + START.size <= len(data):
        _offset, length, _middle, magic = START.unpack_from(data, at)
        yield Head(at, at + BEFORE_LENGTH + length, magic)
        at += BEFORE_LENGTH + max(length, START.size - BEFORE_LENGTH)
