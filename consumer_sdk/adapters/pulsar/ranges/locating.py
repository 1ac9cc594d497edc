"""Where starts stand, asked of the REST API where it is known, and else of readers.

``(0, 0, 0)`` is the begin of a topic that has nothing: no ledger is below it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping
from typing import Any

import _pulsar

from consumer_sdk.adapters.pulsar.client.ids import Place, next_place, place_of
from consumer_sdk.adapters.pulsar.client.topics import topic_of
from consumer_sdk.adapters.pulsar.ranges.admin import RangeAdmin
from consumer_sdk.adapters.pulsar.ranges.native_readers import NativeReader
from consumer_sdk.adapters.pulsar.ranges.options import NOBODY, RangeOptions
from consumer_sdk.adapters.pulsar.ranges.topic_stats import BEGIN, Survey, begin_of
from consumer_sdk.errors import ConfigurationError, TransientAdapterError
from consumer_sdk.records import AtPosition, AtTime, Partition, Position, Start, StartPoint

__all__ = ["BEGIN", "Locator"]

READ = 30
"""Reads of `POLL` milliseconds for a message that the broker says there is."""

ATTEMPTS = 2
"""Readers that look for it."""


class Locator:
    """Finds positions.

    Args:
        admin: None: readers look, which takes about 0.13 s instead of some milliseconds.
        reader_of: makes a reader of a topic, not opened.
    """

    def __init__(
        self,
        options: RangeOptions,
        admin: RangeAdmin | None,
        reader_of: Callable[[str], NativeReader],
    ) -> None:
        self._options = options
        self._admin = admin
        self._reader_of = reader_of
        self._latest: dict[Partition, Place] = {}
        name = options.pulsar.subscription
        self._survey = None if admin is None else Survey(admin, name)

    def check(self, at: Start) -> None:
        """A start that this connection can find.

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
        """Never goes back: without the REST API nobody tells where a topic ends that was emptied."""
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
        """The position of the first message of a reader; None: there is no message.

        (1) A seek to the topic's end is answered; (2) the broker closes the reader; (3) the client opens
        it again, forgets the seek's time, and says that there is a message. So what does not
        come is asked for again, by a new reader.

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
    """None: it did not come in time."""
    for _ in range(READ):
        found: Place | None = await reader.run(_read_one, time)
        if found is not None:
            return found
    return None


def _read_one(native: Any, time: float) -> Place | None:
    """A message of the time or later.

    The client fetches one from the topic's begin when it opens. Where that comes only after the
    answer to the seek, it is still handed out.
    """
    try:
        message = native.read_next(100)
    except _pulsar.Timeout:
        return None
    return (
        place_of(message.message_id()) if message.publish_timestamp() >= int(time * 1000) else None
    )
