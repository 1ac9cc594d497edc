"""What is to happen, in the order of its time: a simulation without an event loop."""

from __future__ import annotations

import heapq
from collections.abc import Callable

__all__ = ["Agenda"]

ENOUGH = 400_000
"""Events of one seed, after which it is taken to run in circles."""


class Agenda:
    """Calls at times; those of one time run in the order in which they were put there."""

    __slots__ = ("_calls", "_number", "now")

    def __init__(self) -> None:
        self.now = 0.0
        self._calls: list[tuple[float, int, Callable[[], None]]] = []
        self._number = 0

    def at(self, when: float, call: Callable[[], None]) -> None:
        """Calls it then; at once if that is past."""
        self._number += 1
        heapq.heappush(self._calls, (max(when, self.now), self._number, call))

    def after(self, delay: float, call: Callable[[], None]) -> None:
        """Calls it so many seconds from now."""
        self.at(self.now + delay, call)

    def run_until(self, when: float) -> None:
        """Lets everything happen up to then.

        Raises:
            AssertionError: there is no end of it.
        """
        while self._calls and self._calls[0][0] <= when:
            assert self._number < ENOUGH, "the simulation runs in circles"
            self.now, _, call = heapq.heappop(self._calls)
            call()
        self.now = when
