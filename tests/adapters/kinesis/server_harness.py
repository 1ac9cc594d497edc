"""The adapter on a real server, through the real client."""

from __future__ import annotations

import asyncio
import math
import time
import uuid
from collections.abc import Sequence
from typing import Any, ClassVar

from consumer_sdk.abc import Adapter
from consumer_sdk.adapters.kinesis import KinesisAdapter
from consumer_sdk.records import Partition, Position
from consumer_sdk.stores import MemoryStore
from consumer_sdk.testing.conformance.adapters import AdapterHarness, Record
from consumer_sdk.testing.conformance.adapters.harness import Ability
from consumer_sdk.testing.kinesis import FakeKinesisServer
from consumer_sdk.testing.servers import KinesisEndpoint
from tests.adapters.kinesis.harness import FAITHFUL, QUICK, shard_id

__all__ = [
    "FakeServerHarness",
    "KinesaliteHarness",
    "ServerHarness",
    "connection",
    "delete_stream",
]

APART = 0.05
"""Seconds between records that a time is to stand between; both servers count milliseconds."""


def connection(server: KinesisEndpoint) -> dict[str, Any]:
    """The adapter's options that lead to a server."""
    return {"endpoint_url": server.endpoint_url, "region_name": server.region, **server.credentials}


async def next_second() -> None:
    """Waits for it, by the clock on the wall."""
    await asyncio.sleep(math.ceil(time.time()) + APART - time.time())


async def delete_stream(server: KinesisEndpoint, stream: str) -> None:
    """Deletes a stream; it is gone when this returns."""
    async with server._client() as client:
        await client.delete_stream(StreamName=stream)
        while stream in (await client.list_streams(Limit=10_000))["StreamNames"]:
            await asyncio.sleep(0.02)


async def recreate_stream(server: KinesisEndpoint, stream: str) -> None:
    """Deletes a stream and makes it again, so that its time of creation tells the two apart."""
    await delete_stream(server, stream)
    await next_second()  # in which a stream was created is all that kinesalite tells
    await server.create_stream(stream)


class ServerHarness(AdapterHarness):
    """A real server, which other tests share: all streams have names of their own.

    Nothing is ever trimmed there: a day would have to pass.

    Args:
        options: of all adapters.
    """

    abilities: ClassVar[frozenset[Ability]] = frozenset({"recreate", "split"})
    patience = 300.0
    quiet = 0.2
    faithful = FAITHFUL

    def __init__(self, server: KinesisEndpoint, **options: Any) -> None:
        self.server = server
        self.options = options
        self.leases = MemoryStore().leases
        self._split: set[str] = set()

    def partition_id(self, number: int) -> str:
        return shard_id(number)

    def number_of(self, partition: Partition) -> int:
        return int(partition.id.rpartition("-")[2])

    async def create_stream(self, partitions: int = 1) -> str:
        stream = f"conformance-{uuid.uuid4().hex}"
        await self.server.create_stream(stream, partitions)
        return stream

    def make_adapter(self, stream: str, group: str, **options: Any) -> Adapter:
        given = connection(self.server) | QUICK | self.options | options
        return KinesisAdapter(stream, group=group, **given)

    async def append(
        self, stream: str, records: Sequence[Record], partition: int = 0
    ) -> list[Position]:
        rows = [((record.key or b"none").decode(), record.value or b"") for record in records]
        shard = None if stream in self._split else shard_id(partition)
        taken = await self.server.put(stream, rows, shard=shard)
        return [(int(sequence), 0) for _, sequence in taken]

    async def append_apart(self, stream: str, records: Sequence[Record]) -> float:
        half = len(records) // 2
        await self.append(stream, records[:half])
        between = time.time() + APART / 2
        await asyncio.sleep(APART)  # the server's clock is the machine's
        await self.append(stream, records[half:])
        await next_second()  # it tells its time in whole ones: "latest" is up to one too early
        return between

    def past_end(self, latest: Position | None) -> Position:
        assert latest is None
        return 10**56, 0

    async def split(self, stream: str) -> None:
        (shard,) = await self.server.shards(stream)
        await self.server.split(stream, shard["ShardId"])
        self._split.add(stream)

    async def recreate(self, stream: str) -> None:
        await recreate_stream(self.server, stream)


class KinesaliteHarness(ServerHarness):
    """kinesalite never answers a request for records after the last one's time: it is given up."""

    def __init__(self, server: KinesisEndpoint) -> None:
        super().__init__(server, request_timeout=3.0)


class FakeServerHarness(ServerHarness):
    """The fake of our own, over HTTP."""

    abilities: ClassVar[frozenset[Ability]] = ServerHarness.abilities | {"truncate"}
    quiet = 0.1
    server: FakeKinesisServer

    async def truncate(self, stream: str, before: Position, partition: int = 0) -> None:
        stored = self.server.kinesis.stream(stream).shard(shard_id(partition)).stored()
        (first,) = (record for record in stored if record.sequence == before[0])
        self.server.kinesis.trim(stream, first.time)
