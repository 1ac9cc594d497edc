"""Records tracked and acked one by one, in random order, beside the peers' structures."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from benchmarks.trackers.ours import Driven, OurQueue, OursWithTimeouts
from benchmarks.trackers.peers import PEERS
from benchmarks.trackers.runs import RUN, Steps, blocks, make_run, scatter
from benchmarks.trackers.timing import Stopwatch, medians, ratio, take_turns

__all__ = ["against_peers", "by_window"]

_RECORDS = 200_000
_FLUSH_EACH = 50_000
_WINDOW = 10_000
_WINDOWS = (100, 1_000, 10_000, 100_000)


def against_peers(*, rounds: int, shrink: int) -> dict[str, Any]:
    """Every structure in a window of 10 000; ours with ack timeouts and as a queue as well."""
    records, window = 2 * _RECORDS // shrink, _WINDOW // shrink
    peers = PEERS | {"ours, with ack timeouts": OursWithTimeouts, "ours, a queue": OurQueue}
    found = take_turns({name: _side(peers[name], window, records) for name in peers}, rounds)
    costs = {name: seconds / records * 1e9 for name, seconds in medians(found).items()}
    return {
        "track_ack_vs_sortedset": ratio(found, "SortedSet", "ours"),
        "track_ack_ns": costs,
    }


def by_window(*, rounds: int, shrink: int) -> dict[str, Any]:
    """Records a second of ours and of the sorted sets."""
    rates: dict[str, dict[int, float]] = {"ours": {}, "SortedSet": {}}
    records = _RECORDS // shrink
    for window in _WINDOWS:
        sides = {name: _side(PEERS[name], window // shrink, records) for name in rates}
        for name, seconds in medians(take_turns(sides, rounds)).items():
            rates[name][window // shrink] = records / seconds
    return {"curves": {"window": rates}}


def _side(make: Callable[[], Driven], window: int, records: int) -> Callable[[], float]:
    run = max(1, min(RUN, window // 10))
    acks = scatter(window, records, run)
    return lambda: _seconds(make(), window, run, acks)


def _seconds(peer: Driven, window: int, run: int, acks: list[list[int]]) -> float:
    """CPU seconds for all the acks, their runs and a flush each 50 000, with a full window."""
    for first in range(0, window, run):
        peer.track(make_run(first, run))
    watch, until_flush = Stopwatch(), _FLUSH_EACH
    for steps in blocks(acks, window, run):
        with watch:
            _drive(peer, steps)
        until_flush -= run * len(steps)
        if until_flush <= 0:
            until_flush = _FLUSH_EACH
            with watch:
                peer.flush()
    return watch.seconds


def _drive(peer: Driven, steps: Steps) -> None:
    track, ack = peer.track, peer.ack
    for run, indices in steps:
        track(run)
        for index in indices:
            ack(index)
