"""The adapter on the in-process fake, for the conformance suite and for tests of its own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar

from consumer_sdk.abc import Adapter
from consumer_sdk.adapters.kinesis import KinesisAdapter, Limits
from consumer_sdk.adapters.kinesis.consumer.session import Session
from consumer_sdk.adapters.kinesis.options import KinesisOptions
from consumer_sdk.adapters.kinesis.service.service import Service
from consumer_sdk.records import Partition, Position
from consumer_sdk.stores import MemoryStore
from consumer_sdk.testing.conformance.adapters import AdapterHarness, Record
from consumer_sdk.testing.conformance.adapters.harness import Ability
from consumer_sdk.testing.faults import Faults
from consumer_sdk.testing.kinesis import FakeKinesis, FakeService, ShardLimits

__all__ = ["FAITHFUL", "QUICK", "FakeAdapter", "FakeHarness", "shard_id"]

QUICK: dict[str, Any] = {
    "lease_duration": 0.6,
    "handover_timeout": 2.0,
    "poll_interval": 0.02,
    "discovery_interval": 0.5,
    "limits": Limits(calls=100, bytes=float("inf")),
}
"""Options for a server without limits, and for tests that wait for members to die."""

FAITHFUL = (Record(b"", b"k"), Record(b"\x00\xff", b"\xc3\xa9"), Record(b"v" * 5000, b"k" * 200))
"""Kinesis knows neither nulls nor headers, and keys are text."""


def shard_id(number: int) -> str:
    """The id of a new stream's shard."""
    return f"shardId-{number:012d}"


class FakeAdapter(KinesisAdapter):
    """An adapter whose service is in this process.

    Args:
        make_service: makes it.
    """

    def __init__(self, stream: str, *, make_service: Callable[[], Service], **options: Any) -> None:
        super().__init__(stream, **options)
        self._make = make_service

    def _make_service(self, options: KinesisOptions) -> Service:
        return self._make()

    @property
    def _session(self) -> Session:
        (session,) = self._sessions.all
        return session


class FakeHarness(AdapterHarness):
    """A fake without limits, in real time."""

    abilities: ClassVar[frozenset[Ability]] = frozenset({"crash", "recreate", "split", "truncate"})
    patience = 10.0
    quiet = 0.1
    faithful = FAITHFUL

    def __init__(self) -> None:
        self.kinesis = FakeKinesis(limits=ShardLimits.none())
        self.store = MemoryStore()
        self.leases = self.store.leases
        self._made = 0
        self._time = self.kinesis.clock.wall() - 60  # no two records arrive at the same time
        self._faults: dict[Adapter, Faults] = {}

    def partition_id(self, number: int) -> str:
        return shard_id(number)

    def number_of(self, partition: Partition) -> int:
        return int(partition.id.rpartition("-")[2])

    async def create_stream(self, partitions: int = 1) -> str:
        self._made += 1
        self.kinesis.create_stream(f"stream-{self._made}", partitions)
        return f"stream-{self._made}"

    def make_adapter(self, stream: str, group: str, **options: Any) -> Adapter:
        faults = Faults()
        adapter = FakeAdapter(
            stream,
            group=group,
            make_service=lambda: FakeService(self.kinesis, stream, faults),
            **QUICK | options,
        )
        self._faults[adapter] = faults
        return adapter

    async def append(
        self, stream: str, records: Sequence[Record], partition: int = 0
    ) -> list[Position]:
        return [self._put(stream, record, partition) for record in records]

    def _put(self, stream: str, record: Record, partition: int) -> Position:
        shards = {shard.id for shard in self.kinesis.stream(stream).open_shards()}
        shard = shard_id(partition) if shard_id(partition) in shards else None
        self._time += 0.001
        key = (record.key or b"none").decode()
        _, stored = self.kinesis.put(stream, record.value or b"", key, shard=shard, time=self._time)
        return stored.sequence, 0

    async def append_apart(self, stream: str, records: Sequence[Record]) -> float:
        now = self.kinesis.clock.wall()
        half = len(records) // 2
        for number, record in enumerate(records):
            time = now - 10 if number < half else now - 5
            self.kinesis.put(stream, record.value or b"", time=time)
        return now - 7

    def past_end(self, latest: Position | None) -> Position:
        assert latest is None
        return 10**56, 0

    async def crash(self, adapter: Adapter) -> None:
        assert isinstance(adapter, KinesisAdapter)
        self._faults[adapter].die()
        adapter._sessions.abort()

    async def truncate(self, stream: str, before: Position, partition: int = 0) -> None:
        stored = self.kinesis.stream(stream).shard(shard_id(partition)).stored()
        (first,) = (record for record in stored if record.sequence == before[0])
        self.kinesis.trim(stream, first.time)

    async def split(self, stream: str) -> None:
        (shard,) = self.kinesis.stream(stream).open_shards()
        self.kinesis.split(stream, shard.id)

    async def recreate(self, stream: str) -> None:
        self.kinesis.delete_stream(stream)
        self.kinesis.create_stream(stream)
