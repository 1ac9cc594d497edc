"""How long handlers and requests take, and which errors end them: counted here, read elsewhere."""

from __future__ import annotations

import asyncio
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import accumulate
from operator import add
from typing import NamedTuple

__all__ = ["BOUNDS", "ErrorNames", "Histogram", "HistogramSnapshot", "Timing"]

BOUNDS = (0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0)
"""Seconds, inclusive: what OpenTelemetry's messaging conventions ask for."""
QUICK = BOUNDS[0]
MOST_NAMES = 50
OTHER = "other"
"""What stands for the errors beyond the first fifty names."""


class HistogramSnapshot(NamedTuple):
    """What a histogram has counted.

    Attributes:
        counts: of each bound of `BOUNDS`, and of what is above the last one.
        sum: seconds.
    """

    counts: tuple[int, ...]
    sum: float

    def cumulative(self) -> Iterator[tuple[str, int]]:
        """Each bound as text, and how many took no longer; the last one is ``"+Inf"``."""
        names = (*map(str, BOUNDS), "+Inf")
        return zip(names, accumulate(self.counts), strict=True)

    def plus(self, other: HistogramSnapshot) -> HistogramSnapshot:
        """A histogram of what both have counted."""
        return HistogramSnapshot(tuple(map(add, self.counts, other.counts)), self.sum + other.sum)

    @property
    def total(self) -> int:
        """How many durations it has."""
        return sum(self.counts)


class Histogram:
    """Durations in fourteen buckets, and one above."""

    __slots__ = ("_counts", "_sum")

    def __init__(self) -> None:
        self._counts = [0] * (len(BOUNDS) + 1)
        self._sum = 0.0

    def add(self, seconds: float) -> None:
        """Counts one duration."""
        self._counts[bisect_left(BOUNDS, seconds)] += 1
        self._sum += seconds

    def add_quick(self, count: int, seconds: float) -> None:
        """So many, none of them longer than `QUICK`, that took so long together."""
        self._counts[0] += count
        self._sum += seconds

    def snapshot(self) -> HistogramSnapshot:
        """A copy of its counts."""
        return HistogramSnapshot(tuple(self._counts), self._sum)


class ErrorNames:
    """Names errors by their types, fifty of them at most: each is a label of a time series."""

    def __init__(self) -> None:
        self._names: set[str] = set()

    def admit(self, name: str) -> str:
        """The name itself, or what stands for all others."""
        if name not in self._names:
            if len(self._names) >= MOST_NAMES:
                return OTHER
            self._names.add(name)
        return name


class Timing:
    """The histograms and counts of one consumer.

    Attributes:
        dead_letters: durable dead letters by the name of their error.
        flushes: flushed checkpoints, or acks of a partition, by what became of them.
    """

    def __init__(self) -> None:
        self._errors = ErrorNames()
        self._handlers: dict[tuple[str, str | None], Histogram] = {}
        self._requests: dict[tuple[str, str | None], Histogram] = {}
        self.dead_letters: Counter[str] = Counter()
        self.flushes: Counter[str] = Counter()

    def handler(self, stream: str, error: str | None = None) -> Histogram:
        """Of the handlers of a stream's records that returned, or that ended by an error."""
        key = stream, None if error is None else self._errors.admit(error)
        return self._handlers.setdefault(key, Histogram())

    def request(self, operation: str, error: str | None = None) -> Histogram:
        """Of requests: ``"receive"``, ``"commit"`` or ``"save"``."""
        key = operation, None if error is None else self._errors.admit(error)
        return self._requests.setdefault(key, Histogram())

    @contextmanager
    def measured(self, operation: str) -> Iterator[None]:
        """Measures one request, which ends with the block; one that is cancelled is no request."""
        time = asyncio.get_running_loop().time
        began = time()
        try:
            yield
        except Exception as error:
            self.request(operation, type(error).__name__).add(time() - began)
            raise
        self.request(operation).add(time() - began)

    def flushed(self, outcomes: Iterable[str]) -> None:
        """Flushes have ended, each with ``"durable"``, ``"sent"``, ``"retry"`` or ``"fenced"``."""
        self.flushes.update(outcomes)

    def dead_lettered(self, error: str) -> None:
        """Counts a dead letter that is durable."""
        self.dead_letters[self._errors.admit(error)] += 1

    def handlers(self) -> dict[tuple[str, str | None], HistogramSnapshot]:
        """Copies of the handlers' histograms, by stream and error."""
        return {key: each.snapshot() for key, each in list(self._handlers.items())}

    def requests(self) -> dict[tuple[str, str | None], HistogramSnapshot]:
        """Copies of the requests' histograms, by operation and error."""
        return {key: each.snapshot() for key, each in list(self._requests.items())}
