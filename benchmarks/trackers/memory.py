"""What a structure keeps in memory, as `tracemalloc` counts it.

Each size is measured in a process of its own.
"""

from __future__ import annotations

import gc
import tracemalloc
from collections.abc import Callable
from typing import Any

from benchmarks.trackers.ours import Driven, OurQueue, Ours
from benchmarks.trackers.peers import PEERS
from benchmarks.trackers.runs import RUN, Kind, entry, make_run, offset

__all__ = ["STRUCTURES", "TRACKERS", "in_flight", "stuck", "traced"]

STRUCTURES: dict[str, tuple[Callable[[], Driven], Kind]] = {
    "ours, tuple": (Ours, entry),
    "ours, int": (Ours, offset),
} | {name: (make, offset) for name, make in PEERS.items() if name != "ours"}
TRACKERS: dict[str, tuple[Callable[[], Driven], Kind]] = {
    "a log, int": (Ours, offset),
    "a log, tuple": (Ours, entry),
    "a queue, tuple": (OurQueue, entry),
}


def stuck(*, structure: str, records: int) -> dict[str, Any]:
    """Bytes for one record that is stuck and so many settled behind it, after a flush."""

    def settle(peer: Driven, first: int, count: int) -> None:
        peer.track(make_run(first, count, kind))
        for index in range(first or 1, first + count):
            peer.ack(index)

    make, kind = STRUCTURES[structure]
    kept = _kept(make, records + 1, settle)
    return {"curves": {"stuck": {structure: {records: kept}}}}


def in_flight(*, tracker: str, records: int) -> dict[str, Any]:
    """Bytes for each of so many records in flight, its position included."""

    def track(peer: Driven, first: int, count: int) -> None:
        peer.track(make_run(first, count, kind))

    make, kind = TRACKERS[tracker]
    return {"in_flight_bytes": {tracker: _kept(make, records, track) / records}}


def _kept(
    make: Callable[[], Driven], records: int, drive: Callable[[Driven, int, int], object]
) -> int:
    gc.collect()
    tracemalloc.start()
    peer = make()
    for first in range(0, records, RUN):
        drive(peer, first, min(RUN, records - first))
    peer.flush()
    return traced()


def traced() -> int:
    """Bytes kept since `tracemalloc` was started; stops it."""
    gc.collect()
    kept, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return kept
