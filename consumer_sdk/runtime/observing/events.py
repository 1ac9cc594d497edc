"""The last events of a consumer, for people: a ring buffer."""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from consumer_sdk.records import Partition

__all__ = ["Event", "EventKind", "Events"]

KEPT = 200
"""Events that are kept."""
TOGETHER = 1.0
"""Seconds within which events of one kind are one event, so that a storm leaves room for others."""
NAMED = 10
"""Partitions that one event names."""

EventKind = Literal[
    "assigned",
    "revoked",
    "lost",
    "ended",
    "fenced",
    "reset",
    "hole-alarm",
    "hole-alarm-over",
    "paused",
    "resumed",
    "fetch-error",
    "dead-lettered",
    "no-ack",
    "loop-blocked",
]


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened to a consumer.

    Attributes:
        number: the event's number, from 1. Later events of its kind within a second join it, and
            change the other attributes.
        time: seconds since the epoch, of the last event that joined.
        kind: what happened.
        partitions: the partitions that it concerns, ten at most.
        count: how many partitions or records it stands for.
        text: one line about the last event that joined.
        worker: the number of the worker process, from 0; None if there is only one process.
    """

    number: int
    time: float
    kind: EventKind
    partitions: tuple[Partition, ...]
    count: int
    text: str
    worker: int | None = None


class Events:
    """The last 200 events, and how often each kind happened.

    Args:
        wall: seconds since the epoch.

    Attributes:
        counts: how many partitions or records each kind stands for, since the beginning.
    """

    def __init__(self, wall: Callable[[], float] = time.time) -> None:
        self._wall = wall
        self._ring: deque[Event] = deque(maxlen=KEPT)
        self._latest: dict[str, Event] = {}
        self._number = 0
        self.counts: Counter[str] = Counter()

    def add(
        self, kind: EventKind, text: str, partitions: Sequence[Partition] = (), count: int = 0
    ) -> None:
        """Something has happened; ``count`` is that of the partitions unless it is given."""
        now, count = self._wall(), count or len(partitions) or 1
        self.counts[kind] += count
        before = self._latest.get(kind)
        if before is not None and now - before.time < TOGETHER and self._is_kept(before):
            named = tuple(dict.fromkeys((*before.partitions, *partitions[:NAMED])))[:NAMED]
            event = Event(before.number, now, kind, named, before.count + count, text)
            self._ring[event.number - self._ring[0].number] = event
        else:
            self._number += 1
            event = Event(self._number, now, kind, tuple(partitions[:NAMED]), count, text)
            self._ring.append(event)
        self._latest[kind] = event

    def _is_kept(self, event: Event) -> bool:
        return event.number >= self._ring[0].number

    def all(self) -> tuple[Event, ...]:
        """Those that are kept, the oldest first."""
        return tuple(self._ring)
