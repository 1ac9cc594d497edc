"""Finds the position of a start: by the REST API if its address is known, otherwise by native readers.

A request tells the ends of all partitions of a topic (`Survey`), so that a stream without news costs one request
for each topic. The broker tells where a topic's last entry is, but that may belong to an open transaction. So
the last entry that may be read is asked of each partition, as long as something was written behind it.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping
from typing import Any

import _pulsar

from consumer_sdk.adapters.pulsar.client.admin import Admin, cursor_in, written_in
from consumer_sdk.adapters.pulsar.client.ids import Place, next_place, place_of
from consumer_sdk.adapters.pulsar.client.topics import topic_of
from consumer_sdk.adapters.pulsar.ranges.native_readers import NativeReader
from consumer_sdk.adapters.pulsar.ranges.options import NOBODY, RangeOptions
from consumer_sdk.adapters.pulsar.ranges.topic_stats import Ledgers
from consumer_sdk.errors import ConfigurationError, TransientAdapterError
from consumer_sdk.records import AtPosition, AtTime, Partition, Position, Start, StartPoint

__all__ = ["BEGIN", "Locator", "Survey", "look_cost"]

BEGIN: Place = (0, 0, 0)
"""The begin of a topic that has nothing: no ledger is below it."""

READ = 30
"""How often a message is waited for that the broker says there is, `POLL` milliseconds each time."""

ATTEMPTS = 2
"""Readers that look for such a message, one after another."""


class Locator:
    """Finds positions.

    Args:
        admin: the REST API; None: native readers look, which takes about 0.13 s instead of some milliseconds.
        reader_of: makes a reader of a topic that is not open yet.
    """

    def __init__(
        self,
        options: RangeOptions,
        admin: Admin | None,
        reader_of: Callable[[str], NativeReader],
    ) -> None:
        self._options = options
        self._admin = admin
        self._reader_of = reader_of
        self._latest: dict[Partition, Place] = {}
        name = options.pulsar.subscription
        self._survey = None if admin is None else Survey(admin, name)

    def check(self, at: Start) -> None:
        """Refuses a start that this connection cannot find.

        Raises:
            ConfigurationError: it needs an option that was not given.
        """
        if at is not StartPoint.BROKER:
            return
        if self._options.pulsar.subscription == NOBODY:
            raise ConfigurationError("where a subscription stands: give subscription=…")
        if self._admin is None:
            raise ConfigurationError(
                "where a subscription stands is told by the REST API alone: give admin_url=…"
            )

    async def find_all(
        self, partitions: Collection[Partition], at: Start
    ) -> Mapping[Partition, Position | None]:
        """What a start stands for now, for each partition; None: there is none.

        Raises:
            AdapterError: the broker did not answer, or refused.
        """
        known = {} if self._survey is None else await self._survey.find(partitions, at)
        rest = [each for each in partitions if each not in known]
        found = await asyncio.gather(*(self.find(each, at) for each in rest))
        return {**known, **dict(zip(rest, found, strict=True))}

    async def find(self, partition: Partition, at: Start) -> Position | None:
        """What a start stands for now; None: there is none.

        Raises:
            AdapterError: the broker did not answer, or refused.
        """
        if isinstance(at, AtPosition):
            return at.position
        if isinstance(at, AtTime):
            return await self._read_at(partition, _pulsar.MessageId.earliest, time=at.time)
        if at is StartPoint.EARLIEST:
            return await self._earliest(partition)
        if at is StartPoint.LATEST:
            return await self._latest_of(partition)
        return await self._cursor(partition) if at is StartPoint.BROKER else None

    async def _earliest(self, partition: Partition) -> Place | None:
        if self._admin is None:
            found = await self._read_at(partition, _pulsar.MessageId.earliest)
            return BEGIN if found is None else (found[0], found[1], 0)
        internals = await self._admin.internals(topic_of(partition))
        return None if internals is None else begin_of(internals)

    async def _latest_of(self, partition: Partition) -> Place | None:
        """The end. It never goes back: without the REST API nobody tells where an emptied topic ends."""
        if self._admin is not None:
            return await self._admin.after_last(topic_of(partition))
        last = await self._read_at(partition, _pulsar.MessageId.latest)
        if last is not None:
            self._latest[partition] = next_place(last)
        return self._latest.get(partition, BEGIN)

    async def _cursor(self, partition: Partition) -> Place | None:
        assert self._admin is not None  # noqa: S101 - checked before
        return await self._admin.cursor(topic_of(partition), self._options.pulsar.subscription)

    async def _read_at(
        self, partition: Partition, start: Any, *, time: float | None = None
    ) -> Place | None:
        """The position of the first message at or behind a start; None: there is no message.

        A message that does not come is asked for again, by a new reader, since the client may be wrong:
        1. the broker answers a seek to the topic's end, and closes the reader;
        2. the client opens it again, forgets the seek's time, and says that there is a message.

        Raises:
            AdapterError: the broker did not answer, or refused.
        """
        topic = topic_of(partition)
        for _ in range(ATTEMPTS):
            reader = self._reader_of(topic)
            try:
                await reader.open(start, self._options.for_reader(1))
                if time is not None:
                    await reader.seek(time)
                if not await reader.has_more():
                    return None
                if (found := await _first(reader, time or 0.0)) is not None:
                    return found
            finally:
                await reader.aclose()
        raise TransientAdapterError(
            f"{topic}: its last message does not come: one that was sent in chunks cannot be "
            f"found from its last chunk: give admin_url=…"
        )


async def _first(reader: NativeReader, time: float) -> Place | None:
    """The place of the first message; None: it did not come in time."""
    for _ in range(READ):
        found: Place | None = await reader.run(_read_one, time)
        if found is not None:
            return found
    return None


def _read_one(native: Any, time: float) -> Place | None:
    """The place of the next message; None where none came, or one that is older than ``time``.

    1. The reader opens, and asks for a message from the topic's begin; 2. the broker answers the seek;
    3. the message of before comes, and the client hands it out.
    """
    try:
        message = native.read_next(100)
    except _pulsar.Timeout:
        return None
    return (
        place_of(message.message_id()) if message.publish_timestamp() >= int(time * 1000) else None
    )


# -- many partitions at once ------------------------------------------------------------------

ALIKE = 10
"""Partitions of a topic that load the broker like one request more: it asks each of them for us."""

READER_CALLS = 4
"""Requests of a reader for one partition: lookup, opening, the last message, closing."""


class Survey:
    """Asks for all partitions of a topic at once.

    Args:
        subscription: its cursors are looked for.
    """

    def __init__(self, admin: Admin, subscription: str) -> None:
        self._admin = admin
        self._name = subscription
        self._ends: dict[Partition, Place | None] = {}

    async def find(
        self, partitions: Collection[Partition], at: Start
    ) -> dict[Partition, Place | None]:
        """What a start stands for, for partitions whose topics have several of those asked for.

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
        """The readable end. Where it was the end of what was written, it is asked again when more is written."""
        if self._ends.get(partition) == written:
            return written
        end = await self._admin.after_last(topic_of(partition))
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
    """About how many requests a look at the ends of all partitions takes."""
    if not has_admin:
        return READER_CALLS * len(partitions)
    streams = {partition.stream for partition in partitions}
    return len(streams) + len(partitions) // ALIKE
