"""Settled ranges: closed, ascending, disjoint, above a watermark.

It is not known which position follows another, so two ranges are joined only where they share one.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from operator import itemgetter

from consumer_sdk.records.partitions import Position

__all__ = [
    "Gap",
    "Interval",
    "Span",
    "common",
    "gaps_above",
    "holds",
    "is_in",
    "is_within",
    "join",
    "unite",
]

Span = tuple[Position, Position]
"""Settled positions, first and last, inclusive."""
Interval = tuple[Position | None, Position]
"""What lies between two positions, without them; below the second one, if the first is None."""
Gap = tuple[Position | None, Position | None]
"""An interval; above the first position, if the second is None."""


def holds(ranges: Sequence[Span], wanted: Span) -> bool:
    """One of ``ranges`` holds all of ``wanted``."""
    at = bisect_right(ranges, wanted[0], key=itemgetter(0)) - 1
    return at >= 0 and bool(wanted[1] <= ranges[at][1])


def join(
    watermark: Position | None, ranges: Iterable[Span]
) -> tuple[Position | None, tuple[Span, ...]]:
    """The union of a settled prefix and of ranges in any order, in as few ranges as can be."""
    joined: list[Span] = []
    for first, last in sorted(ranges):
        if watermark is not None and first <= watermark:
            watermark = max(watermark, last)
        elif joined and first <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(joined[-1][1], last))
        else:
            joined.append((first, last))
    return watermark, tuple(joined)


def is_in(position: Position, interval: Interval) -> bool:
    """The position lies between the ends."""
    lower, upper = interval
    return bool((lower is None or lower < position) and position < upper)


def is_within(interval: Interval, gap: Gap) -> bool:
    """All of the interval lies in the gap."""
    (lower, upper), (low, high) = interval, gap
    is_above = low is None or (lower is not None and low <= lower)
    return bool(is_above and (high is None or upper <= high))


def gaps_above(watermark: Position | None, ranges: Iterable[Span]) -> list[Gap]:
    """What lies above a watermark and in none of the ascending ``ranges``."""
    found: list[Gap] = []
    for first, last in ranges:
        found.append((watermark, first))
        watermark = last
    return [*found, (watermark, None)]


def common(intervals: Iterable[Interval], gaps: Sequence[Gap]) -> list[Interval]:
    """What lies in one of ``intervals`` and in one of ``gaps``."""
    found: list[Interval] = []
    for lower, upper in intervals:
        for low, high in gaps:
            start = max((each for each in (lower, low) if each is not None), default=None)
            end = upper if high is None else min(upper, high)
            if start is None or start < end:
                found.append((start, end))
    return found


def unite(intervals: Sequence[Interval]) -> tuple[Interval, ...]:
    """The union of intervals in any order, ascending, in as few as can be."""
    united: list[Interval] = []
    rising = [each for each in intervals if each[0] is not None]
    lowest = [upper for lower, upper in intervals if lower is None]
    for lower, upper in [*([(None, max(lowest))] if lowest else []), *sorted(rising)]:
        if united and lower < united[-1][1]:
            united[-1] = (united[-1][0], max(united[-1][1], upper))
        else:
            united.append((lower, upper))
    return tuple(united)
