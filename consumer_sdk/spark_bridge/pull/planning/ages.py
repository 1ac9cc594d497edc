"""How old the first record is that a query has not read.

`ArrivalTimes` tells it from where the logs ended at each look, and asks nobody. A look at ``T`` that finds the
end at 100 says that whatever is at 100 or above came after ``T``. So a query that has read up to 100 is
behind since ``T`` at the earliest.

Where no look tells, the time of one record does: a query that begins far behind has to be asked about.
`AgeProbe` reads one record of a partition, in the background and now and then, and nobody waits for that. What
goes wrong leaves the age unknown, and nothing else. It has a connection of its own, since a broker answers
the requests of one connection in their order: where a read is slow (another tier, a quota), whoever plans
the next micro-batch would wait for it.
"""

from __future__ import annotations

import asyncio
import logging
import math
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from contextlib import aclosing
from typing import Any, TypeAlias

from consumer_sdk.range_reads import PartitionRange, RangeReader
from consumer_sdk.records import Partition, Position
from consumer_sdk.spark_bridge.pull.connections import Connections
from consumer_sdk.spark_bridge.pull.options.options import PullOptions

__all__ = ["AgeProbe", "ArrivalTimes"]

_MOST_LOOKS = 16
"""Looks that are remembered of a partition that a query is behind in."""
_COARSE = 60.0
"""Seconds between two looks, of which it is worth to know more."""

_EVERY = 10.0
"""Seconds from one round to the next, as with the lag of a consumer."""
_MOST_ASKED = 32
"""Partitions in a round: each one costs a request."""
_PATIENCE = 5.0
"""Seconds for a round."""

_log = logging.getLogger(__name__)

_Look: TypeAlias = tuple[Position, float]


class ArrivalTimes:
    """What is remembered of the looks at the ends of one query's partitions."""

    def __init__(self) -> None:
        self._looks: dict[Partition, list[_Look]] = {}

    def look(self, ends: Mapping[Partition, Position], now: float) -> None:
        """The logs ended there.

        Args:
            ends: of all partitions; those that are not named are forgotten.
            now: when it was asked for, in seconds since the epoch.
        """
        known = self._looks
        self._looks = {p: _with(known.get(p, []), end, now) for p, end in ends.items()}

    def waiting(self, read: Mapping[Partition, Position]) -> dict[Partition, float]:
        """Since when, at the earliest, the first record waits that is not read.

        Args:
            read: up to where the query has read each partition; never less than the last time.

        Returns:
            seconds since the epoch, of the partitions where that is known: something waits, and
            it came after the first look.
        """
        found = {}
        for partition, at in read.items():
            looks = self._looks.get(partition, [])
            while len(looks) > 1 and looks[1][0] <= at:
                del looks[0]  # of those that it is past, the last one tells
            if looks and looks[0][0] <= at < looks[-1][0]:
                found[partition] = looks[0][1]
        return found

    def vague(self, read: Mapping[Partition, Position]) -> list[PartitionRange]:
        """What is not read yet, where nothing or little is known of since when; the former first.

        Args:
            read: as for `waiting`, which was called before.
        """
        unknown, coarse = [], []
        for partition, at in read.items():
            looks = self._looks.get(partition, [])
            if not looks or looks[-1][0] <= at:
                continue
            waits = PartitionRange(partition, at, looks[-1][0])
            if looks[0][0] > at:
                unknown.append(waits)
            elif looks[0][0] < at and looks[1][1] - looks[0][1] > _COARSE:
                coarse.append(waits)
        return unknown + coarse

    def note(self, partition: Partition, at: Position, since: float) -> None:
        """What is at ``at``, and whatever follows it, came at ``since`` or later, as a producer says.

        What the looks at both sides of it say is known for certain.
        """
        looks = self._looks.get(partition, [])
        place = bisect_right(looks, at, key=lambda look: look[0])
        if place < len(looks):  # it is not at the end, nor gone
            earliest = looks[place - 1][1] if place else since
            looks.insert(place, (at, min(max(since, earliest), looks[place][1])))


def _with(looks: list[_Look], end: Position, now: float) -> list[_Look]:
    """With one more; in place, as there may be thousands of partitions."""
    if looks and end < looks[-1][0]:
        looks.clear()  # the topic was made anew
    if looks and end == looks[-1][0]:
        looks.pop()  # nothing came since
    looks.append((end, now))
    if len(looks) > _MOST_LOOKS:
        del looks[1:-1:2]  # the older ones get coarser
    return looks


class AgeProbe:
    """Reads a record of each partition that is behind since nobody knows when.

    Args:
        options: of the query.
        connections: where readers come from.
        arrivals: told what was found.
        clock: monotonic seconds.
    """

    def __init__(
        self,
        options: PullOptions,
        connections: Connections,
        arrivals: ArrivalTimes,
        clock: Callable[[], float],
    ) -> None:
        self._options = options.for_tasks()
        self._connections = connections
        self._arrivals = arrivals
        self._clock = clock
        self._due = 0.0
        self._asked: dict[Partition, float] = {}
        self._round: asyncio.Task[None] | None = None

    def ask(self, read: Mapping[Partition, Position]) -> None:
        """Begins a round, if it is time for one and there is something to ask.

        Args:
            read: up to where the query has read.
        """
        if self._clock() < self._due or (self._round is not None and not self._round.done()):
            return
        self._due = self._clock() + _EVERY
        if wanted := self._arrivals.vague(read):
            wanted.sort(key=lambda each: self._asked.get(each.partition, -math.inf))
            self._round = asyncio.create_task(self._note(wanted[:_MOST_ASKED]))

    async def aclose(self) -> None:
        """Ends a round that is under way."""
        if self._round is not None:
            self._round.cancel()
            await asyncio.wait([self._round])

    async def _note(self, wanted: Sequence[PartitionRange]) -> None:
        identity, make = (AgeProbe, self._options.identity()), self._options.open_reader
        try:
            async with (
                asyncio.timeout(_PATIENCE),
                self._connections.client(identity, make) as reader,
            ):
                for each in wanted:
                    await self._note_one(reader, each)
        except Exception:  # noqa: BLE001 - whoever plans finds out what is wrong with the broker
            _log.debug("it is not known how old unread records are", exc_info=True)

    async def _note_one(self, reader: RangeReader, wanted: PartitionRange) -> None:
        self._asked[wanted.partition] = self._clock()  # the others have their turn before it
        try:
            since = await _time_of_first(reader, wanted)
        except Exception:  # noqa: BLE001 - deleted meanwhile, for one; others are there
            _log.debug("it is not known how old %s is", wanted, exc_info=True)
            return
        if since is not None:
            self._arrivals.note(wanted.partition, wanted.start, since)


async def _time_of_first(reader: RangeReader, wanted: PartitionRange) -> float | None:
    """The time of the first record, in seconds since the epoch; None if it has none."""
    parts: Any = reader.read_range(wanted, max_bytes=1)
    async with aclosing(parts):
        async for columns in parts:
            if len(columns):
                found = columns.timestamps[0]
                return found / 1000 if found and found > 0 else None
    return None
