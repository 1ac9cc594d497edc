"""Makes what a frame shows: a bounded part of a snapshot, and rates between snapshots. Pure."""

from __future__ import annotations

import heapq
from collections import Counter, deque
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from operator import sub
from typing import Any, NamedTuple, TypeAlias

from consumer_sdk.records import Partition
from consumer_sdk.runtime import Event, HistogramSnapshot, PartitionSnapshot, Pinned, Snapshot
from consumer_sdk.runtime.observing.timing import BOUNDS

__all__ = ["KEPT", "Trends", "frame", "quantile"]

KEPT = 300
"""Points that are kept: five minutes, with one point a second."""
NEWEST = 10
"""Points in each frame, so that a viewer that missed some frames has no gap."""
ROWS = 200
"""Partitions in a frame; of more, those that need attention most."""
EVENTS = 50
SHORTEST = 0.25
"""Seconds between two snapshots below which no rate is made: one record would look like many a second."""
STALE = 10.0
"""Seconds between two snapshots above which no line is drawn between their rates."""

Plain: TypeAlias = dict[str, Any]


class Point(NamedTuple):
    """One second of a picture.

    Attributes:
        time: seconds since the epoch.
        settled, failed, dead_lettered: a second.
        p50, p95: seconds that handlers took since the point before; None where none ended.
        lag: records behind the end, of all partitions; None where that is not known.
        in_flight: unsettled records.
    """

    time: float
    settled: float
    failed: float
    dead_lettered: float
    p50: float | None
    p95: float | None
    lag: int | None
    in_flight: int


class Trends:
    """The rates of one consumer over time, from its snapshots."""

    def __init__(self) -> None:
        self.points: deque[Point] = deque(maxlen=KEPT)
        self._before: Snapshot | None = None

    def add(self, now: Snapshot) -> None:
        """Takes in another snapshot; the first one gives no rates."""
        before = self._before
        if before is not None and 0 <= now.time - before.time < SHORTEST:
            return
        self._before = now
        if before is None or not 0 < now.time - before.time <= STALE:
            return
        self.points.append(_point(before, now))


def _point(before: Snapshot, now: Snapshot) -> Point:
    seconds, old, new = now.time - before.time, before.stats, now.stats
    times = _difference(_all_times(before), _all_times(now))
    lags = [each.lag for each in now.partitions if each.lag is not None]
    return Point(
        time=round(now.time, 3),
        settled=round((new.settled - old.settled) / seconds, 2),
        failed=round((new.failed - old.failed) / seconds, 2),
        dead_lettered=round((new.dead_lettered - old.dead_lettered) / seconds, 2),
        p50=quantile(0.5, times),
        p95=quantile(0.95, times),
        lag=sum(lags) if lags else None,
        in_flight=new.in_flight,
    )


def _all_times(snapshot: Snapshot) -> tuple[int, ...]:
    return _sum(snapshot.handler_times.values())


def _sum(times: Iterable[HistogramSnapshot]) -> tuple[int, ...]:
    return tuple(map(sum, zip(*(each.counts for each in times), strict=True)))


def _difference(before: Sequence[int], now: Sequence[int]) -> tuple[int, ...]:
    return tuple(map(sub, now, before)) if before else tuple(now)


def quantile(part: float, counts: Sequence[int]) -> float | None:
    """The quantile of a histogram, in seconds; None where nothing was measured.

    Within a bucket all are taken for evenly spread; above the last bound there is that bound.
    """
    wanted = part * sum(counts)
    if not wanted:
        return None
    passed = 0
    for count, (low, high) in zip(counts, pairwise((0.0, *BOUNDS)), strict=False):
        if passed + count >= wanted:
            return round(low + (high - low) * (wanted - passed) / count, 6)
        passed += count
    return BOUNDS[-1]


# -- frames ---------------------------------------------------------------------------------


def frame(snapshot: Snapshot, trends: Trends, *, is_first: bool = False) -> Plain:
    """A consumer as a frame shows it, in plain values.

    Args:
        is_first: with all points that are kept, not the newest alone.
    """
    held = [each for each in snapshot.partitions if each.is_held]
    shown = _worst([each for each in snapshot.partitions if each.is_held or each.pause_text])
    points = list(trends.points)
    return {
        "name": " · ".join(filter(None, (snapshot.group or "no group", snapshot.broker))),
        "streams": sorted({each.partition.stream for each in snapshot.partitions}),
        "time": snapshot.time,
        "state": snapshot.state,
        "live": snapshot.health.live,
        "ready": snapshot.health.ready,
        "reasons": snapshot.health.reasons,
        "totals": _totals(snapshot, held),
        "partitions": [_row(each) for each in shown],
        "held": len(held),
        "dead_letters": dict(Counter(snapshot.dead_letters).most_common(10)),
        "handler_times": _quantiles(snapshot.handler_times),
        "events": [_event(each) for each in reversed(snapshot.events[-EVENTS:])],
        "points": points if is_first else points[-NEWEST:],
    }


def _totals(snapshot: Snapshot, held: Sequence[PartitionSnapshot]) -> Plain:
    stats = snapshot.stats
    lags = [each.lag for each in held if each.lag is not None]
    seconds = [each.lag_seconds for each in held if each.lag_seconds is not None]
    return {
        "settled": stats.settled,
        "failed": stats.failed,
        "retrying": stats.retrying,
        "redelivered": stats.redelivered,
        "dead_lettered": stats.dead_lettered,
        "flushes": stats.flushes,
        "fetch_errors": stats.fetch_errors,
        "in_flight": stats.in_flight,
        "in_flight_bytes": stats.in_flight_bytes,
        "in_flight_limit": snapshot.in_flight_limit,
        "is_full": snapshot.is_full,
        "handlers": snapshot.handlers,
        "handlers_limit": snapshot.handlers_limit,
        "lanes": sum(each.lanes for each in held),
        "trees": sum(each.trees for each in held),
        "holes": sum(each.holes for each in held),
        "paused": sum(each.paused is not None for each in held),
        "lag": sum(lags) if lags else None,
        "lag_seconds": max(seconds, default=None),
        "loop_lag": round(snapshot.loop_lag, 4),
    }


def _worst(partitions: Sequence[PartitionSnapshot]) -> list[PartitionSnapshot]:
    """Partitions ordered by their names; of too many, those that need attention most."""
    if len(partitions) > ROWS:
        partitions = heapq.nlargest(ROWS, partitions, key=_badness)
    return sorted(partitions, key=lambda each: _natural(each.partition))


def _badness(each: PartitionSnapshot) -> tuple[bool, bool, float, int]:
    age = 0.0 if each.pinned is None else each.pinned.age
    return each.is_held, bool(each.pause_text), age, each.lag or 0


def _natural(partition: Partition) -> tuple[str, int, str]:
    stream, id_ = partition
    number = id_.rpartition("-")[2]
    return stream, int(number) if number.isascii() and number.isdecimal() else 0, id_


def _row(each: PartitionSnapshot) -> Plain:
    return {
        "stream": each.partition.stream,
        "id": each.partition.id,
        "state": _state(each),
        "is_by_hand": each.pause_text is not None,
        "pause_text": each.pause_text,
        "position": each.position,
        "pinned": None if each.pinned is None else _pinned(each.pinned),
        "in_flight": each.in_flight,
        "in_flight_bytes": each.in_flight_bytes,
        "holes": each.holes,
        "retrying": each.retrying,
        "blocked": each.blocked,
        "lanes": each.lanes,
        "trees": each.trees,
        "lag": each.lag,
        "lag_seconds": None if each.lag_seconds is None else round(each.lag_seconds, 1),
        "settled": each.settled,
        "failed": each.failed,
        "dead_lettered": each.dead_lettered,
        "worker": each.worker,
    }


def _state(each: PartitionSnapshot) -> str:
    """The state of a partition, in one word or two."""
    if not each.is_held:
        return "elsewhere"
    if each.is_draining:
        return "draining"
    return "reading" if each.paused is None else f"paused: {each.paused}"


def _pinned(pinned: Pinned) -> Plain:
    return {
        "position": pinned.position,
        "state": pinned.state,
        "age": round(pinned.age, 1),
        "attempts": pinned.attempts,
        "key": None if pinned.key is None else _short(pinned.key),
        "running": None if pinned.running is None else round(pinned.running, 1),
    }


LONGEST_KEY = 80


def _short(key: bytes) -> str:
    text = key[:LONGEST_KEY].decode("utf-8", "backslashreplace")
    return f"{text}…" if len(key) > LONGEST_KEY else text


def _quantiles(times: Mapping[tuple[str, str | None], HistogramSnapshot]) -> list[Plain]:
    """The counts of each stream since the consumer was opened."""
    streams = sorted({stream for stream, _error in times})
    counts = {of: _sum([t for (s, _e), t in times.items() if s == of]) for of in streams}
    return [
        {
            "stream": of,
            "count": sum(counts[of]),
            "p50": quantile(0.5, counts[of]),
            "p95": quantile(0.95, counts[of]),
            "p99": quantile(0.99, counts[of]),
        }
        for of in streams
    ]


def _event(event: Event) -> Plain:
    worker = "" if event.worker is None else f"worker {event.worker}: "
    return {
        "number": event.number,
        "time": event.time,
        "kind": event.kind,
        "count": event.count,
        "partitions": [f"{each.stream}/{each.id}" for each in event.partitions],
        "text": f"{worker}{event.text}",
    }
