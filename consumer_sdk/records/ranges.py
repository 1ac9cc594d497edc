"""Settled ranges: closed, ascending, disjoint, above a watermark.

Positions need not have neighbours, so ranges are joined only where they share a position.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from operator import itemgetter

from consumer_sdk.records.partitions import Position

__all__ = ["Range", "holds", "join"]

Range = tuple[Position, Position]
"""Settled positions, first and last, inclusive."""


def holds(ranges: Sequence[Range], wanted: Range) -> bool:
    """One of ``ranges`` holds all of ``wanted``."""
    at = bisect_right(ranges, wanted[0], key=itemgetter(0)) - 1
    return at >= 0 and bool(wanted[1] <= ranges[at][1])


def join(
    watermark: Position | None, ranges: Iterable[Range]
) -> tuple[Position | None, tuple[Range, ...]]:
    """The union of a settled prefix and of ranges in any order, in as few ranges as can be."""
    joined: list[Range] = []
    for first, last in sorted(ranges):
        if watermark is not None and first <= watermark:
            watermark = max(watermark, last)
        elif joined and first <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(joined[-1][1], last))
        else:
            joined.append((first, last))
    return watermark, tuple(joined)
