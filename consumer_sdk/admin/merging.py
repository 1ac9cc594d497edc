"""Merges the snapshots of a service's processes into one, as if they were one consumer. Pure.

Counts never fall: the counts of a process stay when it ends, without what it held. So do the counts that it forgets
while it runs. A partition that moved from one process to another is one partition, with the counts of both.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import fields, replace
from functools import reduce
from operator import add
from typing import Any, NamedTuple, TypeVar

from consumer_sdk.records import Partition
from consumer_sdk.runtime import (
    ConsumerStats,
    Event,
    Health,
    HistogramSnapshot,
    PartitionSnapshot,
    Snapshot,
)
from consumer_sdk.runtime.observing.events import KEPT
from consumer_sdk.runtime.observing.health import TURN, State

__all__ = ["NOTHING", "Member", "Memory", "ended", "health", "labelled", "merged", "state_of"]

Key = TypeVar("Key", bound=Hashable)

REMEMBERED = 20_000
"""Partitions of ended processes whose counts are kept, at most."""
APART = 10**9
"""Distance between the event numbers of two processes."""
SLOW = 0.9
"""Seconds without an answer after which the health says so."""
COUNTS = (
    "fetched",
    "suppressed",
    "settled",
    "failed",
    "redelivered",
    "dead_lettered",
    "assigned",
    "revoked",
    "lost",
)
STATES: Sequence[State] = ("running", "opening", "new", "stopping", "closed", "failed")
"""The service has the first of these states that one of its processes has."""
HELD = ("partitions", "paused", "over_hole_budget", "over_max_lag")
NOW = ("in_flight", "in_flight_bytes", "retrying")
NO_STATS = ConsumerStats(
    **{each.name: () if each.name in HELD else 0 for each in fields(ConsumerStats)}  # type: ignore[arg-type]  # by its name
)
NOTHING = Snapshot(
    time=0.0,
    broker="",
    group=None,
    state="opening",
    health=Health(live=True, ready=False),
    stats=NO_STATS,
    partitions=(),
    handlers=0,
    handlers_limit=0,
    in_flight_limit=0,
    is_full=False,
    loop_lag=0.0,
    handler_times={},
    request_times={},
    dead_letters={},
    flushes={},
    events=(),
    event_counts={},
)
"""The snapshot of a service of which nothing is known yet."""


class Member(NamedTuple):
    """One process of the service, at one moment.

    Attributes:
        number: from 0.
        snapshot: the last one; None for none yet.
        is_running: there is a process.
        silent: seconds for which it has owed an answer; none before it can answer.
        is_odd: its last answer cannot be read.
    """

    number: int
    snapshot: Snapshot | None = None
    is_running: bool = True
    silent: float = 0.0
    is_odd: bool = False

    @property
    def is_live(self) -> bool:
        """The process need not be restarted, as far as anybody knows."""
        is_well = self.snapshot is None or self.snapshot.health.live
        return is_well and self.silent <= TURN

    @property
    def is_ready(self) -> bool:
        """The process may hand out records."""
        if self.snapshot is None or self.is_odd:
            return False
        return self.snapshot.health.ready and self.silent <= TURN


def health(members: Iterable[Member]) -> Health:
    """The health of the service: it is ready if all processes are, and live if all are; else the reasons.

    A process that owes an answer for longer than an event loop may stand still is not live. A process that is being
    started is: nobody knows how long its application takes to import.
    """
    members = list(members)
    return Health(
        live=all(each.is_live for each in members),
        ready=bool(members) and all(each.is_ready for each in members),
        reasons=tuple(f"worker {each.number} {why}" for each in members for why in _reasons(each)),
    )


def _reasons(member: Member) -> Iterable[str]:
    if not member.is_running:
        return ["does not run"]
    if member.is_odd:
        return ["says what cannot be read: see the log"]
    silence = [f"has not answered for {member.silent:.1f} s"] if member.silent > SLOW else []
    if member.snapshot is None:
        return silence or ["is being started"]
    return [*silence, *(f"says: {why}" for why in member.snapshot.health.reasons)]


def labelled(snapshot: Snapshot, worker: int, life: int) -> Snapshot:
    """A process's snapshot with its number at the partitions that it holds and at its events.

    Args:
        life: of the process, another one for each: tells its events from those of others.
    """
    partitions = [p._replace(worker=worker) if p.is_held else p for p in snapshot.partitions]
    events = [
        replace(event, worker=worker, number=life * APART + event.number)
        for event in snapshot.events
    ]
    return replace(snapshot, partitions=tuple(partitions), events=tuple(events))


def ended(snapshot: Snapshot) -> Snapshot:
    """What stays of a process that has ended: its counts and events."""
    none: dict[str, Any] = dict.fromkeys(HELD, ()) | dict.fromkeys(NOW, 0)
    return replace(
        NOTHING,
        time=snapshot.time,
        broker=snapshot.broker,
        group=snapshot.group,
        stats=replace(snapshot.stats, **none),
        partitions=tuple(map(_left, snapshot.partitions))[-REMEMBERED:],
        handler_times=snapshot.handler_times,
        request_times=snapshot.request_times,
        dead_letters=snapshot.dead_letters,
        flushes=snapshot.flushes,
        events=snapshot.events,
        event_counts=snapshot.event_counts,
    )


def _left(each: PartitionSnapshot) -> PartitionSnapshot:
    counts = {name: getattr(each, name) for name in COUNTS}
    return PartitionSnapshot(each.partition, is_held=False, **counts)


class Memory:
    """The counts that a process has forgotten, of partitions that left it and that others count on."""

    def __init__(self) -> None:
        self._before: dict[Partition, PartitionSnapshot] = {}
        self._forgotten: dict[Partition, PartitionSnapshot] = {}

    def with_forgotten(self, now: Snapshot) -> Snapshot:
        """Its next snapshot, with further rows of what it counted before and tells no more."""
        rows = {each.partition: each for each in now.partitions}
        for partition in self._forgotten.keys() & (rows.keys() - self._before.keys()):
            if _goes_on(self._forgotten[partition], rows[partition]):  # one answer had left it out
                del self._forgotten[partition]
        for partition, row in self._before.items():
            if not _goes_on(row, rows.get(partition)):
                self._forget(row)
        self._before = rows
        return replace(now, partitions=(*now.partitions, *self._forgotten.values()))

    def _forget(self, row: PartitionSnapshot) -> None:
        earlier = self._forgotten.pop(row.partition, None)
        known = [_left(row)] if earlier is None else [earlier, _left(row)]
        self._forgotten[row.partition] = _partition(known)
        if len(self._forgotten) > REMEMBERED:
            del self._forgotten[next(iter(self._forgotten))]


def _goes_on(row: PartitionSnapshot, now: PartitionSnapshot | None) -> bool:
    return now is not None and all(getattr(now, name) >= getattr(row, name) for name in COUNTS)


def merged(snapshots: Sequence[Snapshot]) -> Snapshot:
    """One snapshot of all processes, with the counts added; without a health.

    Args:
        snapshots: one at least. Where two hold one partition, the later one has it: the other
            does not know yet.
    """
    snapshots = sorted(snapshots, key=lambda each: each.time)
    last = snapshots[-1]
    return Snapshot(
        time=last.time,
        broker=last.broker,
        group=last.group,
        state=state_of(snapshots),
        health=NOTHING.health,
        stats=_stats([each.stats for each in snapshots]),
        partitions=_partitions(snapshots),
        handlers=sum(each.handlers for each in snapshots),
        handlers_limit=sum(each.handlers_limit for each in snapshots),
        in_flight_limit=sum(each.in_flight_limit for each in snapshots),
        is_full=any(each.is_full for each in snapshots),
        loop_lag=max(each.loop_lag for each in snapshots),
        handler_times=_times(each.handler_times for each in snapshots),
        request_times=_times(each.request_times for each in snapshots),
        dead_letters=_counts(each.dead_letters for each in snapshots),
        flushes=_counts(each.flushes for each in snapshots),
        events=_events(snapshots),
        event_counts=_counts(each.event_counts for each in snapshots),
    )


def state_of(snapshots: Iterable[Snapshot]) -> State:
    """The best one; where no process runs, others are started."""
    found = {each.state for each in snapshots}
    return next((state for state in STATES if state in found), NOTHING.state)


def _stats(stats: Sequence[ConsumerStats]) -> ConsumerStats:
    names = [each.name for each in fields(ConsumerStats)]
    return ConsumerStats(**{n: reduce(add, (getattr(each, n) for each in stats)) for n in names})


def _partitions(snapshots: Iterable[Snapshot]) -> tuple[PartitionSnapshot, ...]:
    found: dict[Partition, list[PartitionSnapshot]] = {}
    for snapshot in snapshots:
        for each in snapshot.partitions:
            # The one that was heard of last is forgotten last.
            found[each.partition] = [*found.pop(each.partition, ()), each]
    return tuple(map(_partition, found.values()))


def _partition(rows: Sequence[PartitionSnapshot]) -> PartitionSnapshot:
    """Of one partition, the oldest row first."""
    if len(rows) == 1:
        return rows[0]
    row = max(reversed(rows), key=lambda each: (each.is_held, each.pause_text is not None))
    return row._replace(**{name: sum(getattr(each, name) for each in rows) for name in COUNTS})


def _times(
    several: Iterable[Mapping[Key, HistogramSnapshot]],
) -> dict[Key, HistogramSnapshot]:
    found: dict[Key, HistogramSnapshot] = {}
    for times in several:
        for key, each in times.items():
            found[key] = each if key not in found else found[key].plus(each)
    return found


def _counts(several: Iterable[Mapping[str, int]]) -> dict[str, int]:
    found: Counter[str] = Counter()
    for counts in several:
        for name, number in counts.items():
            found[name] += number
    return dict(found)


def _events(snapshots: Iterable[Snapshot]) -> tuple[Event, ...]:
    found = [event for snapshot in snapshots for event in snapshot.events]
    return tuple(sorted(found, key=lambda event: (event.time, event.number))[-KEPT:])
