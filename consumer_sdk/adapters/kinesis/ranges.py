"""Ranges of Kinesis shards, for tools. It answers each question by reading.

Kinesis reports neither where a shard begins or ends, nor how many records lie between two
positions. So the reader looks for the tip in the latest records, farther and farther back, and
counts records by reading them. That slows other readers of the shard down, because all readers
share five requests a second.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, AsyncIterator, Collection, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from typing import Any, ClassVar

from consumer_sdk.adapters.kinesis.options import FORM, KinesisOptions, read_streams, read_url
from consumer_sdk.adapters.kinesis.service.aggregation import user_records
from consumer_sdk.adapters.kinesis.service.connection import Connection
from consumer_sdk.adapters.kinesis.service.service import (
    IteratorStart,
    Page,
    Service,
    ThrottledError,
)
from consumer_sdk.adapters.kinesis.starts import after, iterator_start
from consumer_sdk.adapters.opening import keep_trying
from consumer_sdk.adapters.urls import split_url
from consumer_sdk.checkpoints.positions import BEGINNING, decode_sequence, encode_sequence
from consumer_sdk.errors import ConfigurationError, PartitionLostError
from consumer_sdk.options import NAME, kinds_of, make_options, optional
from consumer_sdk.range_reads import Columns, PartitionRange, RangeReader
from consumer_sdk.records import (
    AtPosition,
    AtTime,
    Outcome,
    OutcomeKind,
    Partition,
    Position,
    Start,
    StartPoint,
)

__all__ = ["KinesisRanges"]

PAUSE = 0.2
"""Seconds between two requests to a shard."""
THROTTLED = 1.0
"""Seconds to wait after one was refused."""
LOOKS_BACK = (60.0, 3_600.0, 86_400.0)
"""Seconds that the tip is looked for in, before all of a shard is read."""
MOST = 10_000
"""Records in an answer."""


class KinesisRanges(RangeReader):
    """Reads ranges of the shards of Kinesis streams. It moves no position, because positions are in stores.

    Args:
        streams: names or ARNs.
        group: is nobody's here; for `RangeReader`.
        region_name: of the streams.
        connection: any other option of `consumer_sdk.adapters.kinesis.service.connection.Connection`.

    Raises:
        ConfigurationError: an option is unknown or cannot work.
    """

    broker: ClassVar[str] = "kinesis"

    def __init__(
        self,
        *streams: str,
        group: str | None = None,
        region_name: str | None = None,
        **connection: Any,
    ) -> None:
        from consumer_sdk.adapters.kinesis.service.client import ClientService

        self.group = group
        self._connection = make_options(Connection, {"region_name": region_name, **connection})
        self._services: dict[str, Service] = {
            stream.rpartition("/")[2]: ClientService(
                stream, replace(self._connection, region_name=region)
            )
            for stream, region in read_streams(streams, region_name).items()
        }

    @classmethod
    def from_url(cls, url: str) -> KinesisRanges:
        """The reader for ``kinesis://region/stream[,stream]?option=value``.

        Raises:
            ConfigurationError: the URL is malformed, or an option is unknown or cannot work.
        """
        parts, texts = split_url(url, {"kinesis"}, FORM)
        kinds = kinds_of(Connection) | {"group": optional(NAME)}
        streams, options = read_url(parts, texts, kinds, FORM)
        return cls(*streams.split(","), **options)

    @classmethod
    def consumer_options(cls) -> Collection[str]:
        """Options of a consumer's URL that have no effect here."""
        return kinds_of(KinesisOptions).keys()

    async def open(self) -> None:
        for service in self._services.values():
            await self._open(service)

    async def _open(self, service: Service) -> None:
        await keep_trying(lambda _: service.open(), self._connection.connect_timeout)

    async def partitions(self) -> Sequence[Partition]:
        """All shards that are stored, closed ones too."""
        return [
            Partition(stream, shard.id)
            for stream, service in sorted(self._services.items())
            for shard in sorted(await service.shards(), key=lambda shard: shard.id)
        ]

    async def positions(
        self, partitions: Collection[Partition], at: Start
    ) -> Mapping[Partition, Position | None]:
        """Reads what came lately; None of a group, and where no record is as new as a time."""
        found = await asyncio.gather(*(self._position(each, at) for each in partitions))
        return dict(zip(partitions, found, strict=True))

    async def _position(self, partition: Partition, at: Start) -> Position | None:
        if isinstance(at, AtPosition):
            return at.position
        if at is StartPoint.EARLIEST:
            return BEGINNING
        if isinstance(at, AtTime):
            async for page in self._pages(partition, iterator_start(at)):
                for sequence, stored in zip(page.sequences, page.times, strict=True):
                    if stored >= at.time * 1000:
                        return sequence, 0
            return None
        return await self._tip(partition) if at is StartPoint.LATEST else None

    async def _tip(self, partition: Partition) -> Position:
        """After the last record; the beginning of a shard that has none."""
        now = time.time()
        back = (IteratorStart("AT_TIMESTAMP", time=now - seconds) for seconds in LOOKS_BACK)
        for start in chain(back, [IteratorStart("TRIM_HORIZON")]):
            last = None
            async for page in self._pages(partition, start):
                last = page.sequences[-1]
            if last is not None:
                return after(last)
        return BEGINNING

    async def records(self, ranges: Collection[PartitionRange]) -> Mapping[Partition, int]:
        """Counts records by reading them."""
        return dict(zip((r.partition for r in ranges), await self._counts(ranges), strict=True))

    async def _counts(self, ranges: Collection[PartitionRange]) -> list[int]:
        return await asyncio.gather(*map(self._count, ranges))

    async def _count(self, wanted: PartitionRange) -> int:
        return sum([len(columns) async for columns in self.read_range(wanted)])

    async def cut(self, wanted: PartitionRange, records: int) -> Position:
        seen = 0
        async for columns in self.read_range(wanted):
            if seen + len(columns) > records:
                return columns.positions[records - seen]
            seen += len(columns)
        return wanted.stop

    async def record_size(self, partitions: Collection[Partition]) -> Mapping[Partition, float]:
        raise ConfigurationError(f"Kinesis does not tell how large records are ({partitions})")

    async def read_range(
        self,
        wanted: PartitionRange,
        *,
        with_headers: bool = False,  # noqa: ARG002 - Kinesis has none
        max_bytes: int = 8 * 2**20,  # noqa: ARG002 - an answer is a part
    ) -> AsyncGenerator[Columns, None]:
        """A range's records, those of aggregates one by one; ends at the shard's tip at the latest."""
        partition, start, stop = wanted
        if not start < stop:
            return
        first = StartPoint.EARLIEST if start[0] == 0 else AtPosition(start)
        async for page in self._pages(partition, iterator_start(first)):
            rows = [row for row in _rows(page) if start <= row[0] < stop]
            if rows:
                positions, keys, values, times = zip(*rows, strict=True)
                yield Columns(positions, keys, values, times)
            if after(page.sequences[-1]) >= stop:
                return

    async def _pages(self, partition: Partition, start: IteratorStart) -> AsyncIterator[Page]:
        """Answers that have records, up to the tip."""
        service = self._services[partition.stream]
        following: str | None = await service.iterator(partition.id, start)
        while following is not None:
            try:
                page = await service.records(following, MOST)
            except ThrottledError:
                await asyncio.sleep(THROTTLED)
                continue
            if page.sequences:
                yield page
            elif not page.behind:
                return
            following = page.next
            await asyncio.sleep(PAUSE)

    async def commit(self, positions: Mapping[Partition, Position]) -> Mapping[Partition, Outcome]:
        error = PartitionLostError("Kinesis keeps no positions: they are in a store")
        return dict.fromkeys(positions, Outcome(OutcomeKind.FENCED, error=error))

    def encode_position(self, position: Position) -> str:
        return encode_sequence(position)

    def decode_position(self, text: str) -> Position:
        return decode_sequence(text)

    async def aclose(self) -> None:
        await asyncio.gather(*(service.aclose() for service in self._services.values()))


def _rows(page: Page) -> list[tuple[Position, bytes, bytes, int]]:
    """Position, key, data and time of each user record."""
    rows: list[tuple[Position, bytes, bytes, int]] = []
    stored = zip(page.sequences, page.keys, page.data, page.times, strict=True)
    for sequence, key, data, arrived in stored:
        users = user_records(data)
        each = [(key, data)] if users is None else users
        rows += [((sequence, at), *user, arrived) for at, user in enumerate(each)]
    return rows
