"""How old the first record is that a query has not read, where the looks at the logs' ends do not tell.

A query that begins far behind has to be asked about: one record of a partition is read, in the background
and now and then, and nobody waits for that. What goes wrong leaves the age unknown, and nothing else. It
has a connection of its own, since a broker answers the requests of one in their order: where a read is
slow (another tier, a quota), who plans the next micro-batch would wait for it.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import aclosing
from typing import Any

from consumer_sdk.range_reads import PartitionRange, RangeReader
from consumer_sdk.records import Partition, Position
from consumer_sdk.spark_bridge.pull.connections import Connections
from consumer_sdk.spark_bridge.pull.options.options import PullOptions
from consumer_sdk.spark_bridge.pull.planning.arrivals import Arrivals

__all__ = ["Ages"]

_EVERY = 10.0
"""Seconds from one round to the next, as with the lag of a consumer."""
_MOST = 32
"""Partitions in a round: each one costs a request."""
_PATIENCE = 5.0
"""Seconds for a round."""

_log = logging.getLogger(__name__)


class Ages:
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
        arrivals: Arrivals,
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
            self._round = asyncio.create_task(self._note(wanted[:_MOST]))

    async def aclose(self) -> None:
        """Ends a round that is under way."""
        if self._round is not None:
            self._round.cancel()
            await asyncio.wait([self._round])

    async def _note(self, wanted: Sequence[PartitionRange]) -> None:
        identity, make = (Ages, self._options.identity()), self._options.open_reader
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
