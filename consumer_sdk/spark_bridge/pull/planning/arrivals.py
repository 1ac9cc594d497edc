"""Since when records wait that a query has not read yet, from where the logs ended at each look. Pure.

A look at ``T`` that finds the end at 100 says that whatever is at 100
or above came after ``T``; so a query that has read up to 100 is behind since ``T`` at the earliest. Where no look tells, the time of one record does.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping
from typing import TypeAlias

from consumer_sdk.range_reads import PartitionRange
from consumer_sdk.records import Partition, Position

__all__ = ["Arrivals"]

_MOST = 16
"""Looks that are remembered of a partition that a query is behind in."""
_COARSE = 60.0
"""Seconds between two looks, of which it is worth to know more."""

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
            while len(looks) > 1 and looks[1][0] <= at:
                del looks[0]  # of those that it is past, the last one tells
            if looks and looks[0][0] <= at < looks[-1][0]:
                found[partition] = looks[0][1]
        return found

    def vague(self, read: Mapping[Partition, Position]) -> list[PartitionRange]:
        """What is not read yet, where nothing or little is known of since when; the former first.

        Args:
            read: as for `waiting`, which was called before.
        """
        unknown, coarse = [], []
        for partition, at in read.items():
            looks = self._looks.get(partition, [])
            if not looks or looks[-1][0] <= at:
                continue
            waits = PartitionRange(partition, at, looks[-1][0])
            if looks[0][0] > at:
                unknown.append(waits)
            elif looks[0][0] < at and looks[1][1] - looks[0][1] > _COARSE:
                coarse.append(waits)
        return unknown + coarse

    def note(self, partition: Partition, at: Position, since: float) -> None:
        """What is at ``at``, and whatever follows it, came at ``since`` or later, as a producer says.

        What the looks at both sides of it say is known for certain.
        """
        looks = self._looks.get(partition, [])
        place = bisect_right(looks, at, key=lambda look: look[0])
        if place < len(looks):  # it is not at the end, nor gone
            earliest = looks[place - 1][1] if place else since
            looks.insert(place, (at, min(max(since, earliest), looks[place][1])))


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
