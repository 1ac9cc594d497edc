"""Topics of a real Pulsar for range reads, and what is read from them."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import ExitStack, asynccontextmanager, contextmanager
from typing import Any

import pulsar

from consumer_sdk.adapters.pulsar.client.ids import place_of
from consumer_sdk.adapters.pulsar.ranges import PulsarRanges
from consumer_sdk.range_reads import Columns, PartitionRange
from consumer_sdk.records import Partition, Position, StartPoint
from consumer_sdk.testing.servers import PulsarEndpoint
from consumer_sdk.testing.servers.pulsar.endpoint import call, path_of
from tests.adapters.pulsar.producing import producing

__all__ = ["Stage", "columns_of", "consuming", "interleaved", "producing", "read", "values"]


class Stage:
    """One topic of a test's own, that keeps everything.

    Args:
        server: where it lies.
    """

    def __init__(self, server: PulsarEndpoint) -> None:
        self.server = server
        self.topic = f"persistent://public/default/ranges-{uuid.uuid4().hex[:8]}"

    async def create(self, partitions: int = 0, *, kept: bool = True) -> None:
        """Makes the topic; a subscription keeps what is produced."""
        await self.server.create_topic(self.topic, partitions=partitions)
        if kept:
            await self.server.create_subscription(self.topic, "kept")

    async def trim(self, ledger: int) -> None:
        """Has the broker delete what nobody keeps; returns when a ledger is gone."""
        path = path_of(self.topic)
        async with asyncio.timeout(300):
            while True:
                await asyncio.to_thread(call, self.server.admin_url, "POST", f"{path}/trim")
                found = await asyncio.to_thread(
                    call, self.server.admin_url, "GET", f"{path}/internalStats"
                )
                if all(each["ledgerId"] > ledger for each in found["ledgers"]):
                    return
                await asyncio.sleep(0.1)

    async def grow(self, partitions: int) -> None:
        """Gives the topic more partitions."""
        path = f"{path_of(self.topic)}/partitions"
        await asyncio.to_thread(call, self.server.admin_url, "POST", path, partitions)

    @property
    def partition(self) -> Partition:
        """Of a topic that is not partitioned."""
        return Partition(self.topic, "-1")

    def ranges(self, *, admin: bool = True, **options: Any) -> PulsarRanges:
        """Not opened."""
        given: dict[str, Any] = {"service_url": self.server.service_url}
        if admin:
            given["admin_url"] = self.server.admin_url
        return PulsarRanges(self.topic, **given | options)

    @asynccontextmanager
    async def open(self, *, admin: bool = True, **options: Any) -> AsyncIterator[PulsarRanges]:
        """Open for a while."""
        ranges = self.ranges(admin=admin, **options)
        await ranges.open()
        try:
            yield ranges
        finally:
            await ranges.aclose()

    async def produce(self, values: Sequence[bytes], *, batch: bool = False) -> list[Position]:
        """The positions of what was produced."""
        ids = await self.server.produce(self.topic, values, batch=batch)
        return [place_of(each) for each in ids]

    async def whole(
        self, ranges: PulsarRanges, partition: Partition | None = None
    ) -> PartitionRange:
        """All there is."""
        partition = partition or self.partition
        start = (await ranges.positions([partition], StartPoint.EARLIEST))[partition]
        stop = (await ranges.positions([partition], StartPoint.LATEST))[partition]
        return PartitionRange(partition, start, stop)

    def range(self, start: Position, stop: Position) -> PartitionRange:
        """Of the topic that is not partitioned."""
        return PartitionRange(self.partition, start, stop)


async def readers(stage: Stage) -> set[str]:
    """The names of the readers that the topic has."""
    [stats] = await stage.server.stats(stage.topic)
    return set(stats["subscriptions"]) - {"kept"}


async def gone(stage: Stage) -> None:
    """Returns when the topic has no reader: a broker may take a moment to remove one."""
    async with asyncio.timeout(300):
        while await readers(stage):
            await asyncio.sleep(0.01)


async def read(ranges: PulsarRanges, wanted: PartitionRange, **options: Any) -> list[Columns]:
    """All parts of a range."""
    return [part async for part in ranges.read_range(wanted, **options)]


def values(parts: Sequence[Columns]) -> list[bytes | None]:
    """All values in order."""
    return [value for part in parts for value in part.values]


def columns_of(part: Columns) -> Iterator[tuple[Position, bytes | None]]:
    """Positions with values."""
    return zip(part.positions, part.values, strict=True)


@contextmanager
def consuming(stage: Stage, subscription: str, **options: Any) -> Iterator[Any]:
    """A consumer of Pulsar's own client."""
    logger = pulsar.ConsoleLogger(pulsar.LoggerLevel.Error)
    client = pulsar.Client(stage.server.service_url, logger=logger)
    try:
        yield client.subscribe(stage.topic, subscription, **options)
    finally:
        client.close()


def interleaved(stage: Stage, *, messages: int, chunks: int) -> list[bytes]:
    """Sends messages whose chunks may overlap, each by a producer; returns the values."""
    sent = [bytes([65 + number]) * ((chunks * 5 - 3) << 20) for number in range(messages)]
    options: Any = {"chunking_enabled": True, "batching_enabled": False}
    with ExitStack() as stack:
        makers = [
            stack.enter_context(producing(stage.server, stage.topic, **options)) for _ in sent
        ]
        for maker, value in zip(makers, sent, strict=True):
            maker.send_async(value, lambda *_: None)
        for maker in makers:
            maker.flush()
    return sent
