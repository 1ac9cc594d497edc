"""Where records may lie that no consumer was handed, below the highest position that was seen.

A broker that redelivers record by record may deliver late what it, or its client, could not deliver
before: an encrypted record whose key was repaired, or a message in chunks whose last chunk came after
another message. So a position that was passed over is not settled. The tracker keeps the intervals
between neighbouring positions in which such a record may lie.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from operator import itemgetter
from typing import TypeAlias

from consumer_sdk.records import Checkpoint, Position
from consumer_sdk.records.ranges import Interval, Span, holds

__all__ = ["MOST_KEPT", "MOST_STORED", "Gaps", "Unseen", "every_gap", "trusted"]

Gaps: TypeAlias = Callable[[Sequence[Position]], Sequence[int]]
"""Of ascending positions, the offsets of those with room for a record between them and the one before."""

MOST_KEPT = 4096
"""Intervals that are remembered: what was seen below the highest so many counts as never seen."""
MOST_STORED = 256
"""The same of a checkpoint, which is written with each flush."""

_UPPER = itemgetter(1)


def every_gap(positions: Sequence[Position]) -> Sequence[int]:
    """Nothing is known of positions but their order: a record may lie between any two."""
    return range(1, len(positions))


class Unseen:
    """The intervals below the highest position seen in which nothing was settled.

    Args:
        gaps: tells where there is room for a record.
        intervals: of the checkpoint.
    """

    __slots__ = ("_gaps", "_has_begun", "_intervals")

    def __init__(self, gaps: Gaps, intervals: Iterable[Interval] = ()) -> None:
        self._gaps = gaps
        self._has_begun = False  # the highest position is none that a checkpoint tells of
        self._intervals: list[Interval] = list(intervals)

    def stored(self) -> tuple[Interval, ...]:
        """The intervals for a checkpoint; of the lowest, all that lies below is one."""
        return tuple(_highest(self._intervals, MOST_STORED))

    def __contains__(self, position: Position) -> bool:
        """Nobody was handed a record of this position."""
        return self._find(position) >= 0

    def _find(self, position: Position) -> int:
        at = bisect_right(self._intervals, position, key=_UPPER)
        if at == len(self._intervals):
            return -1
        lower = self._intervals[at][0]
        return at if lower is None or lower < position else -1

    def seen(self, last: Position | None, positions: Sequence[Position]) -> None:
        """A run has come, which ascends.

        Args:
            last: the highest position seen before; None: none.
        """
        if self._has_begun:
            positions = [last, *positions]
        else:
            self._note(last, positions[0])
            self._has_begun = True
        for at in self._gaps(positions):
            self._intervals.append((positions[at - 1], positions[at]))
        self._intervals = _highest(self._intervals, MOST_KEPT)

    def passed(self, last: Position | None, settled: Iterable[Span], position: Position) -> None:
        """A record has come after ``last``, with settled ranges of the checkpoint between them.

        What a checkpoint knows may begin and end within an entry, of which the rest has not come.
        """
        seen = last if self._has_begun else None
        for first, end in settled:
            self._note(last, first)
            last = end if last is None else max(last, end)
        if last is None or last != seen or self._gaps([last, position]):
            self._note(last, position)
        self._has_begun = True

    def _note(self, last: Position | None, position: Position) -> None:
        if last is None or position > last:
            insort(self._intervals, (last, position), key=_UPPER)
            self._intervals = _highest(self._intervals, MOST_KEPT)

    def settled(self, position: Position, still_open: Sequence[Position]) -> None:
        """A record that came late is settled; the rest of its entry may still be on its way.

        Args:
            still_open: others that came late and are not, ascending: where one lies is not settled,
                also if there is no room for any other.
        """
        at = self._find(position)
        if at < 0:  # one beside it has closed the interval
            return
        lower, upper = self._intervals[at]
        parts: list[Interval] = [(position, upper)]
        if self._is_needed((lower, position), still_open):
            parts.insert(0, (lower, position))
        self._intervals[at : at + 1] = parts
        self._intervals = _highest(self._intervals, MOST_KEPT)

    def _is_needed(self, interval: Interval, still_open: Sequence[Position]) -> bool:
        lower, upper = interval
        if lower is None or self._gaps([lower, upper]):
            return True
        above = bisect_right(still_open, lower)
        return above < len(still_open) and bool(still_open[above] < upper)


def trusted(checkpoint: Checkpoint) -> tuple[Checkpoint, list[Interval]]:
    """What a checkpoint has as settled, and where that leaves something out.

    Other intervals of it are found anew when records come; ranges below the lowest that it knows of
    are given up. One that has settled something and knows of none is of an earlier release, which
    took for settled what nobody was handed.
    """
    watermark, unseen = checkpoint.watermark, checkpoint.unseen
    highest = checkpoint.ranges[-1][1] if checkpoint.ranges else watermark
    if highest is not None and not unseen:
        unseen = ((None, highest),)
    floor = unseen[0][1] if unseen and unseen[0][0] is None else None
    if floor is None:
        ranges = checkpoint.ranges
    else:
        ranges = tuple((max(a, floor), b) for a, b in checkpoint.ranges if b >= floor)
    kept: list[Interval] = []
    for lower, upper in unseen:
        is_in_prefix = watermark is not None and upper <= watermark
        if is_in_prefix or (lower is not None and holds(ranges, (lower, upper))):
            kept.append((lower, upper))
        elif lower is None and watermark is not None:
            kept.append((None, watermark))
    return replace(checkpoint, ranges=ranges), kept


def _highest(intervals: list[Interval], count: int) -> list[Interval]:
    """With all below them in one: what was settled there is not known any more."""
    if len(intervals) <= count:
        return intervals
    kept = intervals[-count:]
    return [(None, kept[0][1]), *kept[1:]]
