"""The runs that wait in an `Inbox`, in the order in which they are handed out.

A linked list, because a restored retry takes its place in the middle. Which place that is says an
index: of each holding, the runs that start before all of its later ones. They ascend, so that the
last run which starts before a record is found by bisection.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Iterator
from operator import attrgetter
from typing import TypeAlias

from consumer_sdk.records import Message
from consumer_sdk.runtime.partitions.held_partition import HeldPartition

__all__ = ["Runs", "Waiting"]

Waiting: TypeAlias = tuple[HeldPartition, list[Message]]
"""A holding and records of its that are handed out together; at least one."""


class _Link:
    """A run, and the one behind it.

    Attributes:
        first: the index of its first record.
    """

    __slots__ = ("behind", "first", "run")

    def __init__(self, run: Waiting) -> None:
        self.run = run
        self.first = run[1][0].index
        self.behind: _Link | None = None


_FIRST = attrgetter("first")


class Runs:
    """A queue of runs; pure. Each operation is O(1), amortised; `insert` looks at O(log runs)."""

    __slots__ = ("_ahead", "_front", "_last")

    def __init__(self) -> None:
        self._front: _Link | None = None
        self._last: _Link | None = None
        # Of each holding, the runs that start before all of its later ones.
        self._ahead: dict[HeldPartition, deque[_Link]] = {}

    def __bool__(self) -> bool:
        return self._front is not None

    def __iter__(self) -> Iterator[Waiting]:
        link = self._front
        while link is not None:
            yield link.run
            link = link.behind

    def append(self, run: Waiting) -> None:
        """Queues a run behind all others."""
        link = _Link(run)
        if self._last is None:
            self._front = link
        else:
            self._last.behind = link
        self._last = link
        ahead = self._ahead.setdefault(run[0], deque())
        while ahead and ahead[-1].first >= link.first:
            ahead.pop()
        ahead.append(link)

    def appendleft(self, run: Waiting) -> None:
        """Queues a run ahead of all others."""
        link = _Link(run)
        link.behind, self._front = self._front, link
        self._last = self._last or link
        ahead = self._ahead.setdefault(run[0], deque())
        if not ahead or link.first < ahead[0].first:
            ahead.appendleft(link)

    def insert(self, run: Waiting) -> None:
        """Queues a run right behind the last one of its holding that starts before it does.

        Ahead of all others if there is none.
        """
        ahead = self._ahead.get(run[0], ())
        at = bisect_left(ahead, run[1][0].index, key=_FIRST)
        if not ahead or not at:
            self.appendleft(run)
            return
        link, before = _Link(run), ahead[at - 1]
        link.behind, before.behind = before.behind, link
        if self._last is before:
            self._last = link
        self._ahead[run[0]].insert(at, link)

    def popleft(self) -> Waiting:
        """Takes the first run out; there has to be one."""
        link = self._front
        if link is None:
            raise IndexError("pop from an empty queue of runs")
        self._front = link.behind
        if self._front is None:
            self._last = None
        ahead = self._ahead[link.run[0]]
        if ahead[0] is link:
            ahead.popleft()
        if not ahead:
            del self._ahead[link.run[0]]
        return link.run
