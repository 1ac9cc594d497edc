"""Timers of a coordinator: each has a name, and a later one of the same name takes its place."""

from __future__ import annotations

from collections.abc import Callable
from math import inf

__all__ = ["Timers"]

Key = tuple[str, ...]


class Timers:
    """Calls that are due at a time; the clock is told, never read."""

    __slots__ = ("_due", "_number", "now")

    def __init__(self) -> None:
        self.now = 0.0
        self._due: dict[Key, tuple[float, int, Callable[[], None]]] = {}
        self._number = 0

    def schedule(self, key: Key, delay: float, call: Callable[[], None]) -> None:
        """Calls it ``delay`` seconds from now, unless the key is cancelled or scheduled again."""
        self._number += 1
        self._due[key] = (self.now + delay, self._number, call)

    def cancel(self, key: Key) -> None:
        """Forgets the call; nothing happens where there is none."""
        self._due.pop(key, None)

    def clear(self) -> None:
        """Forgets all calls."""
        self._due.clear()

    def wake_at(self) -> float:
        """When the next call is due; ``inf`` for never."""
        return min((at for at, _, _ in self._due.values()), default=inf)

    def advance(self, now: float) -> None:
        """Makes the calls that are due by then, in order, each at its time."""
        while (at := self.wake_at()) <= now:
            self.now = max(self.now, at)
            key = min(self._due, key=lambda key: self._due[key][:2])
            self._due.pop(key)[2]()
        self.now = max(self.now, now)
