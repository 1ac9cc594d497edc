"""Records acked in order, one by one, with more or fewer in flight."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from benchmarks.trackers.ours import Ours
from benchmarks.trackers.runs import RUN, make_run
from benchmarks.trackers.timing import Stopwatch, medians, ratio, take_turns
from consumer_sdk.records import Run

__all__ = ["by_size"]

_RECORDS = 100_000
_SIZES = (1_000, 10_000, 100_000, 1_000_000)
_BLOCK = 20


def by_size(*, rounds: int, shrink: int) -> dict[str, Any]:
    """Nanoseconds to track and ack a record while so many others are in flight."""
    records, sizes = max(_RECORDS // shrink, RUN * _BLOCK), [size // shrink for size in _SIZES]
    found = take_turns({size: _Flight(size, records).seconds for size in sizes}, rounds)
    costs = {size: seconds / records * 1e9 for size, seconds in medians(found).items()}
    return {
        "in_flight_cost_growth": ratio(found, sizes[-1], sizes[0]),
        "curves": {"in_flight": {"ours": costs}},
    }


class _Flight:
    """A tracker with ``size`` records in flight, before a measurement and after."""

    def __init__(self, size: int, records: int) -> None:
        self._tracker = Ours().tracker
        self._records = records
        self._minted = 0
        self._flying: deque[range] = deque()
        while self._minted < size:
            self._take(self._next_run())

    def seconds(self) -> float:
        """CPU seconds to track so many records and to ack as many of the oldest."""
        watch = Stopwatch()
        for _ in range(self._records // RUN // _BLOCK):
            runs = [self._next_run() for _ in range(_BLOCK)]
            with watch:
                self._fly(runs, self._tracker.ack)
        return watch.seconds

    def _next_run(self) -> Run:
        run = make_run(self._minted)
        self._minted += RUN
        return run

    def _take(self, run: Run) -> None:
        tracked = self._tracker.track(run, 0.0)
        self._flying.append(range(tracked.first, tracked.first + tracked.count))

    def _fly(self, runs: Sequence[Run], ack: Callable[[int], bool]) -> None:
        for run in runs:
            self._take(run)
            for index in self._flying.popleft():
                ack(index)
