"""Settled ranges of whole numbers as a bit set: a bit for each position, the first range's first.

Where every second or third record is settled it takes a quarter of what pairs of numbers take.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from consumer_sdk.records.ranges import Span

__all__ = ["bit_set", "read_bit_set"]

RUN = re.compile("1+")


def bit_set(ranges: Sequence[Span]) -> bytes | None:
    """The bits; None where they would be read back as other ranges: two touch, or overlap."""
    first, last = ranges[0][0], ranges[-1][1]
    at = first
    parts: list[str] = []
    for start, end in ranges:
        parts += ("0" * (start - at), "1" * (end - start + 1))
        at = end + 1
    bits = "".join(parts)
    if len(bits) != last - first + 1 or bits.count("01") != len(ranges) - 1:
        return None
    size = -(-len(bits) // 8)
    return int(bits.ljust(8 * size, "0"), 2).to_bytes(size)


def read_bit_set(data: bytes, first: int) -> list[Span]:
    """The ranges of a bit set whose first bit stands for ``first``.

    Raises:
        ValueError: the first range does not begin there, or zeros follow the last one.
    """
    if not data or data[0] < 1 << 7 or not data[-1]:
        raise ValueError("a bit set that is longer than it needs to be")
    bits = f"{int.from_bytes(data):b}"
    return [(first + run.start(), first + run.end() - 1) for run in RUN.finditer(bits)]
