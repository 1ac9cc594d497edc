"""Many partitions' positions from one request for each topic: what a stream without news asks.

The broker tells where a topic's last entry is. It may be one of a transaction that is open: the last
that may be read is asked of each partition, but only where there is something new since it was the last
one of all. So a topic that nobody writes to costs one request, however many partitions it has.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Collection, Mapping
from typing import Any

from consumer_sdk.adapters.pulsar.client.ids import Place
from consumer_sdk.adapters.pulsar.client.topics import topic_of
from consumer_sdk.adapters.pulsar.ranges.admin import RangeAdmin, cursor_in, written_in
from consumer_sdk.adapters.pulsar.ranges.ledgers import Ledgers
from consumer_sdk.records import Partition, Start, StartPoint

__all__ = ["BEGIN", "Survey", "begin_of", "look_cost"]

BEGIN: Place = (0, 0, 0)
"""Of a topic that has nothing: no ledger is below it."""

ALIKE = 10
"""Partitions that load a broker as one request of our own: it asks each of them for us."""

READER_CALLS = 4
"""Calls of a reader that looks at one partition: lookup, opening, the last message, closing."""


class Survey:
    """Asks for all partitions of a topic at once.

    Args:
        subscription: whose cursors are looked for.
    """

    def __init__(self, admin: RangeAdmin, subscription: str) -> None:
        self._admin = admin
        self._name = subscription
        self._ends: dict[Partition, Place] = {}

    async def find(
        self, partitions: Collection[Partition], at: Start
    ) -> dict[Partition, Place | None]:
        """What a start stands for; of partitions of which one request tells more than one.

        Raises:
            AdapterError: the broker does not answer, or refuses.
        """
        if at not in (StartPoint.EARLIEST, StartPoint.LATEST, StartPoint.BROKER):
            return {}
        found = await self._internals(partitions)
        places = await asyncio.gather(
            *(self._place(each, seen, at) for each, seen in found.items())
        )
        return dict(zip(found, places, strict=True))

    async def _place(
        self, partition: Partition, internals: Mapping[str, Any], at: Start
    ) -> Place | None:
        if at is StartPoint.EARLIEST:
            return begin_of(internals)
        if at is StartPoint.BROKER:
            return cursor_in(internals, self._name)
        return await self._latest(partition, written_in(internals))

    async def _latest(self, partition: Partition, written: Place) -> Place | None:
        """The readable end; that of what was readable to its end stays until more is written."""
        if self._ends.get(partition) == written:
            return written
        end = await self._admin.after_last(topic_of(partition))
        if end is not None and end == written:
            self._ends[partition] = end
        return end

    async def _internals(
        self, partitions: Collection[Partition]
    ) -> dict[Partition, Mapping[str, Any]]:
        streams: dict[str, list[Partition]] = defaultdict(list)
        for partition in partitions:
            streams[partition.stream].append(partition)
        asked = [stream for stream, some in streams.items() if len(some) > 1]
        answers = await asyncio.gather(*map(self._admin.of_all, asked))
        return {
            partition: answer[topic_of(partition)]
            for stream, answer in zip(asked, answers, strict=True)
            for partition in streams[stream]
            if topic_of(partition) in answer
        }


def begin_of(internals: Mapping[str, Any]) -> Place:
    """Where a topic's log begins now."""
    return Ledgers.of(internals).first or BEGIN


def look_cost(partitions: Collection[Partition], *, has_admin: bool) -> int:
    """About how many requests a look at all ends is."""
    if not has_admin:
        return READER_CALLS * len(partitions)
    streams = {partition.stream for partition in partitions}
    return len(streams) + len(partitions) // ALIKE
