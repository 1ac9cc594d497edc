"""When something is due for which records: retries and ack timeouts."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from itertools import islice
from typing import Any

from sortedcontainers import SortedDict

__all__ = ["Moment", "Schedule"]


class Moment:
    """A time, and the records for which it comes.

    Attributes:
        due: monotonic seconds.
        is_retry: the next delivery is due; else an ack timeout.
        items: index → what is to be handed back then.
        key: its place among all moments.
        rest: the indices that are yet to come, once a part of them was taken out: to look for the
            first one left in a dict takes as long as there are others gone before it.
    """

    __slots__ = ("due", "is_retry", "items", "key", "rest")

    def __init__(self, due: float, number: int, items: dict[int, Any], *, is_retry: bool) -> None:
        self.due = due
        self.items = items
        self.is_retry = is_retry
        self.key = (due, min(items), number)
        self.rest: Iterator[int] | None = None

    def part(self, most: int) -> Moment:
        """Moves the first records that are left into a moment of their own."""
        if self.rest is None:
            self.rest = iter(list(self.items))
        items = self.items
        first = islice((index for index in self.rest if index in items), most)
        taken = {index: items.pop(index) for index in first}
        return Moment(self.due, 0, taken, is_retry=self.is_retry)


class Schedule:
    """Each record has one moment at most; records that are handed out together share theirs.

    O(log n) for a moment, O(1) for a further record in it; what is stopped is gone at once, so
    that a short delay never waits behind a long one and nothing stale is ever looked at. (Both
    were seen in Pulsar's clients: a timer armed for the first nack held up all shorter ones, and
    one that each nack armed anew starved them.)
    """

    __slots__ = ("_made", "_moments", "moment_of", "retrying")

    def __init__(self) -> None:
        # By tuples, which compare in C.
        self._moments: SortedDict[tuple[float, int, int], Moment] = SortedDict()
        self.moment_of: dict[int, Moment] = {}
        """What is due, by record."""
        self._made = 0
        self.retrying = 0
        """Records that wait for their next delivery."""

    def start(self, due: float, items: dict[int, Any], *, is_retry: bool) -> None:
        """Something is due for all of ``items``, instead of what was due for them before."""
        for index in self.moment_of.keys() & items.keys():
            self.stop(index)
        self._made += 1
        moment = Moment(due, self._made, items, is_retry=is_retry)
        self.moment_of.update(dict.fromkeys(items, moment))
        self._moments[moment.key] = moment
        self.retrying += len(items) if is_retry else 0

    def stop(self, index: int) -> None:
        """Nothing is due for the record any more."""
        moment = self.moment_of.pop(index, None)
        if moment is None:
            return
        self.retrying -= moment.is_retry
        del moment.items[index]
        if not moment.items:
            del self._moments[moment.key]

    def next_due(self) -> float | None:
        """When the first moment comes."""
        return self._moments.keys()[0][0] if self._moments else None

    def pop_due(self, now: float, most: int | None = None) -> Iterator[tuple[int, Any, bool]]:
        """Takes out what is due: index, item, whether it is a retry; to be exhausted.

        Args:
            most: so many at most; of a moment the first ones.
        """
        left = sys.maxsize if most is None else most
        while left > 0 and self._moments and self._moments.keys()[0][0] <= now:
            moment = self._take_first(left)
            left -= len(moment.items)
            self.retrying -= len(moment.items) if moment.is_retry else 0
            for index, item in moment.items.items():
                del self.moment_of[index]
                yield index, item, moment.is_retry

    def _take_first(self, most: int) -> Moment:
        """The first moment; with too many records, a part of it."""
        key: tuple[float, int, int]
        moment: Moment
        key, moment = self._moments.popitem(0)
        if len(moment.items) <= most:
            return moment
        self._moments[key] = moment
        return moment.part(most)
