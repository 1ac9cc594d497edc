"""Counts what a shard has given: five calls and 2 MiB in a second. Pure."""

from __future__ import annotations

from collections import deque

from consumer_sdk.testing.kinesis.errors import throttled
from consumer_sdk.testing.kinesis.options import ShardLimits

__all__ = ["Limiter", "Window"]


class Window:
    """What happened within the last second."""

    __slots__ = ("_events", "total")

    def __init__(self) -> None:
        self._events: deque[tuple[float, float]] = deque()
        self.total = 0.0

    def add(self, now: float, amount: float) -> None:
        """It has happened."""
        self._events.append((now, amount))
        self.total += amount

    def forget(self, now: float) -> None:
        """Drops what is a second old."""
        while self._events and self._events[0][0] <= now - 1:
            self.total -= self._events.popleft()[1]


class Limiter:
    """One shard's. Refused calls do not count."""

    __slots__ = ("_bytes", "_calls", "_iterators", "_limits", "_paid")

    def __init__(self, limits: ShardLimits) -> None:
        self._limits = limits
        self._calls = Window()
        self._iterators = Window()
        self._bytes = Window()
        self._paid = 0.0

    def check_iterator(self, now: float) -> None:
        """Counts a GetShardIterator.

        Raises:
            RefusedError: it is one too many.
        """
        _count(self._iterators, now, self._limits.iterators, "GetShardIterator calls")

    def check_read(self, now: float) -> None:
        """Counts a GetRecords.

        Raises:
            RefusedError: it is one too many, or there were too many bytes before it.
        """
        self._bytes.forget(now)
        if now < self._paid or self._bytes.total >= self._limits.bytes:
            raise throttled("Rate exceeded for shard: bytes per second")
        _count(self._calls, now, self._limits.calls, "GetRecords calls")

    def gave(self, now: float, size: int) -> None:
        """An answer had this many bytes; one of 10 MiB is followed by five seconds of nothing."""
        self._bytes.add(now, size)
        if size > self._limits.bytes:
            self._paid = now + size / self._limits.bytes


def _count(window: Window, now: float, limit: int, what: str) -> None:
    window.forget(now)
    if window.total >= limit:
        raise throttled(f"Rate exceeded for shard: {limit} {what} per second")
    window.add(now, 1)
