"""A set of integers kept as disjoint closed intervals."""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence

__all__ = ["IntervalSet", "intervals_of"]


def intervals_of(values: Sequence[int]) -> list[tuple[int, int]]:
    """The closed intervals that cover exactly ``values``, which ascend without repeats."""
    found: list[tuple[int, int]] = []
    begin = 0
    while begin < len(values):
        end = _run_end(values, begin)
        found.append((values[begin], values[end - 1]))
        begin = end
    return found


def _run_end(values: Sequence[int], begin: int) -> int:
    """Where the consecutive integers from ``begin`` on end.

    ``value - index`` never falls, and grows at each gap, so that a run is found by bisection.
    """
    base = values[begin] - begin
    low, high = begin + 1, len(values)
    while low < high:
        middle = (low + high) // 2
        if values[middle] - middle > base:
            high = middle
        else:
            low = middle + 1
    return low


class IntervalSet:
    """64-bit integers; memory is 16 bytes for each gap, whatever the range.

    Offsets of a partition arrive nearly in order, so that there are few intervals and an
    addition nearly always extends the last one.
    """

    __slots__ = ("_firsts", "_lasts")

    def __init__(self, intervals: Iterable[tuple[int, int]] = ()) -> None:
        self._firsts = array("q")
        self._lasts = array("q")
        for first, last in intervals:
            self.add(first, last)

    def add(self, first: int, last: int) -> None:
        """Adds ``first..last``, inclusive, joining what it touches."""
        low = bisect_left(self._lasts, first - 1)
        high = bisect_right(self._firsts, last + 1)
        if low < high:
            first = min(first, self._firsts[low])
            last = max(last, self._lasts[high - 1])
        self._firsts[low:high] = array("q", (first,))
        self._lasts[low:high] = array("q", (last,))

    def overlaps(self, first: int, last: int) -> bool:
        """Some integer of ``first..last``, inclusive, is in the set."""
        at = bisect_left(self._lasts, first)
        return at < len(self._lasts) and self._firsts[at] <= last

    def __contains__(self, value: int) -> bool:
        return self.overlaps(value, value)

    def __iter__(self) -> Iterator[tuple[int, int]]:
        return zip(self._firsts, self._lasts, strict=True)

    def __len__(self) -> int:
        """The number of intervals."""
        return len(self._firsts)
