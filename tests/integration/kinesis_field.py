"""One stream and one group on a real Kinesis server, and whole consumers on them."""

from __future__ import annotations

import asyncio
import random
import uuid
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from consumer_sdk import Consumer, Message, Ordering, RetryPolicy
from consumer_sdk.adapters.kinesis import KinesisAdapter, Limits
from consumer_sdk.adapters.kinesis.options import KinesisOptions
from consumer_sdk.adapters.kinesis.service.client import ClientService
from consumer_sdk.adapters.kinesis.service.service import IteratorStart, Service
from consumer_sdk.checkpoints.positions import decode_sequence
from consumer_sdk.records import Checkpoint, Lease, Partition
from consumer_sdk.stores import LocalStore
from consumer_sdk.testing.servers import KinesisEndpoint
from consumer_sdk.trackers import decode_checkpoint
from tests.adapters.kinesis.server_harness import connection

__all__ = ["PATIENCE", "KinesisField", "Seen", "WatchedAdapter"]

PATIENCE = 300.0
"""Seconds until something that has to happen counts as missing; a busy machine is slow."""

GROUP = "g"


class WatchedService(ClientService):
    """Notes which shards are asked for.

    Attributes:
        asked: the shard of each iterator, without which there is no GetRecords.
    """

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.asked: list[str] = []

    async def iterator(self, shard: str, start: IteratorStart) -> str:
        self.asked.append(shard)
        return await super().iterator(shard, start)


class WatchedAdapter(KinesisAdapter):
    """An adapter whose requests can be looked at."""

    @property
    def asked(self) -> Sequence[str]:
        """The shard of each iterator."""
        (service,) = self._services
        assert isinstance(service, WatchedService)
        return service.asked

    def _make_service(self, options: KinesisOptions) -> Service:
        return WatchedService(options.stream, options.connection)


class Seen:
    """What handlers were given, of all consumers together.

    Attributes:
        numbers: of all records, in order.
        by_key: the same for each key.
        stuck: numbers whose handlers wait for `let_go`.
        let_go: see there.
    """

    def __init__(self) -> None:
        self.numbers: list[int] = []
        self.by_key: dict[bytes, list[int]] = defaultdict(list)
        self.stuck: frozenset[int] = frozenset()
        self._chance = random.Random(6)
        self.let_go = asyncio.Event()

    async def handle(self, message: Message) -> None:
        """A handler that takes a moment, of different length."""
        number = int(message.value or b"-1")
        await asyncio.sleep(self._chance.random() * 0.05)
        if number in self.stuck:
            await self.let_go.wait()
        self.numbers.append(number)
        self.by_key[message.key or b""].append(number)

    def is_ordered(self) -> bool:
        """Each key's records came in the order in which they were put, and once."""
        return all(numbers == sorted(set(numbers)) for numbers in self.by_key.values())


class KinesisField:
    """What one test needs of a Kinesis.

    Attributes:
        stream: the test's own.
        store_file: where checkpoints and leases are.
        put: how many records were put; their values are their numbers.
    """

    def __init__(self, server: KinesisEndpoint, folder: Path) -> None:
        self.server = server
        self.stream = f"field-{uuid.uuid4().hex}"
        self.store_file = folder / "checkpoints.db"
        self.put = 0

    async def create(self, shards: int = 1) -> list[str]:
        """Makes the stream; returns its shards."""
        await self.server.create_stream(self.stream, shards)
        return [each["ShardId"] for each in await self.server.shards(self.stream)]

    async def append(self, count: int, *, keys: int = 20, shard: str | None = None) -> range:
        """Puts so many numbered records; returns their numbers."""
        numbers = range(self.put, self.put + count)
        rows = [(f"k{number % keys}", b"%d" % number) for number in numbers]
        await self.server.put(self.stream, rows, shard=shard)
        self.put += count
        return numbers

    def adapter(self, **options: Any) -> WatchedAdapter:
        """A member of the group, in no hurry to take anybody for dead."""
        given: dict[str, Any] = {
            "group": GROUP,
            "poll_interval": 0.1,
            "limits": Limits(calls=20),
            **connection(self.server),
        }
        return WatchedAdapter(self.stream, **given | options)

    def store(self) -> LocalStore:
        """The store, opened once more."""
        return LocalStore(self.store_file)

    def consumer(self, adapter: KinesisAdapter | None = None, **options: Any) -> Consumer:
        """A member of the group with its own handle of the store."""
        options.setdefault("store", self.store())
        options.setdefault("flush_interval", 0.02)
        options.setdefault("retry", RetryPolicy(max_attempts=3, initial=0.05, jitter=0.0))
        return Consumer(adapter or self.adapter(), **options)

    @asynccontextmanager
    async def running(
        self,
        consumer: Consumer,
        handler: Callable[[Message], Awaitable[None]],
        **options: Any,
    ) -> AsyncIterator[asyncio.Task[None]]:
        """Runs the consumer in a task; stops it in the end, and raises what it raised."""
        options.setdefault("ordering", Ordering.KEY)
        task = asyncio.create_task(consumer.run(handler, handle_signals=False, **options))
        try:
            yield task
        finally:
            consumer.stop()
            async with asyncio.timeout(PATIENCE):
                await task

    async def leases(self) -> Mapping[str, Lease]:
        """As they are, by shard."""
        store = self.store()
        await store.open()
        try:
            leases = store.leases(GROUP, self.stream)
            assert leases is not None
            found = (await leases.view()).leases
            await leases.aclose()
        finally:
            await store.aclose()
        return found

    async def until_leases(self, is_so: Callable[[Mapping[str, Lease]], bool]) -> None:
        """Waits for something to be so in the leases."""
        async with asyncio.timeout(PATIENCE):
            while not is_so(await self.leases()):
                await asyncio.sleep(0.05)

    async def checkpoints(self, group: str = GROUP) -> dict[str, Checkpoint]:
        """All of a group, by shard."""
        store = self.store()
        await store.open()
        try:
            texts = await store.peek(group, await store.list(group))
        finally:
            await store.aclose()
        return {p.id: _decoded(p, text) for p, text in texts.items() if text is not None}


def _decoded(partition: Partition, text: str) -> Checkpoint:
    return decode_checkpoint(
        text,
        broker="kinesis",
        partition=partition,
        identity=None,
        decode_position=decode_sequence,
    )
