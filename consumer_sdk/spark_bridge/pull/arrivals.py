"""Since when records wait that a query has not read yet, from where the logs ended at each look. Pure.

No record is asked for its time. A look at ``T`` that finds the end at 100 says that whatever is at 100
or above came after ``T``; so a query that has read up to 100 is behind since ``T`` at the earliest.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

from consumer_sdk.records import Partition, Position

__all__ = ["Arrivals"]

_MOST = 16
"""Looks that are remembered of a partition that a query is behind in."""

_Look: TypeAlias = tuple[Position, float]


class Arrivals:
    """What is remembered of the looks at the ends of one query's partitions."""

    def __init__(self) -> None:
        self._looks: dict[Partition, list[_Look]] = {}

    def look(self, ends: Mapping[Partition, Position], now: float) -> None:
        """The logs ended there.

        Args:
            ends: of all partitions; those that are not named are forgotten.
            now: when it was asked for, in seconds since the epoch.
        """
        known = self._looks
        self._looks = {p: _with(known.get(p, []), end, now) for p, end in ends.items()}

    def waiting(self, read: Mapping[Partition, Position]) -> dict[Partition, float]:
        """Since when, at the earliest, the first record waits that is not read.

        Args:
            read: up to where the query has read each partition; never less than the last time.

        Returns:
            seconds since the epoch, of the partitions where that is known: something waits, and
            it came after the first look.
        """
        found = {}
        for partition, at in read.items():
            looks = self._looks.get(partition, [])
            passed = sum(end <= at for end, _ in looks)
            del looks[: max(0, passed - 1)]  # of those that it is past, the last one tells
            if passed and looks[-1][0] > at:
                found[partition] = looks[0][1]
        return found


def _with(looks: list[_Look], end: Position, now: float) -> list[_Look]:
    """With one more; in place, as there may be thousands of partitions."""
    if looks and end < looks[-1][0]:
        looks.clear()  # the topic was made anew
    if looks and end == looks[-1][0]:
        looks.pop()  # nothing came since
    looks.append((end, now))
    if len(looks) > _MOST:
        del looks[1:-1:2]  # the older ones get coarser
    return looks
