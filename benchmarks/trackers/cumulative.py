"""Runs tracked and acked cumulatively: one call for each run of records."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from benchmarks.trackers.ours import Ours
from benchmarks.trackers.runs import RUN, Kind, entry, make_run, offset
from benchmarks.trackers.timing import Stopwatch, best, take_turns
from consumer_sdk.abc import AckTracker
from consumer_sdk.records import Run

__all__ = ["rates"]

_FLUSHES = 10
_RUNS_A_FLUSH = 100
_BLOCK = 20
_KINDS: dict[str, Kind] = {"int": offset, "tuple": entry}
_CASES = (("int", RUN), ("tuple", RUN), ("int", 100), ("int", 10))


def rates(*, rounds: int, shrink: int) -> dict[str, Any]:
    """Records a second, with a flush each 100 runs; by kind of position and length of run."""
    flushes = max(1, _FLUSHES // shrink)
    found = take_turns({case: _side(*case, flushes) for case in _CASES}, rounds)
    rates = {case: 1 / seconds for case, seconds in best(found).items()}
    return {
        "cumulative_records_per_s": rates[_CASES[0]],
        "cumulative": {f"runs of {count}, {kind}": rates[kind, count] for kind, count in _CASES},
    }


def _side(kind: str, count: int, flushes: int) -> Callable[[], float]:
    return lambda: _seconds_per_record(_KINDS[kind], count, flushes)


def _seconds_per_record(kind: Kind, count: int, flushes: int) -> float:
    ours, watch, first = Ours(), Stopwatch(), 0
    for _ in range(flushes):
        for _ in range(_RUNS_A_FLUSH // _BLOCK):
            runs = [make_run(first + at * count, count, kind) for at in range(_BLOCK)]
            first += _BLOCK * count
            with watch:
                _settle(ours.tracker, runs)
        with watch:
            ours.flush()
    return watch.seconds / first


def _settle(tracker: AckTracker, runs: Sequence[Run]) -> None:
    for run in runs:
        tracked = tracker.track(run, 0.0)
        tracker.ack_cumulative(tracked.first + tracked.count - 1)
