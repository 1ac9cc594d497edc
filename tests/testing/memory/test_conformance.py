"""The in-memory adapter keeps the adapters' contract, as a consumer of each kind."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import pytest

from consumer_sdk.abc import Adapter
from consumer_sdk.records import Partition, Position
from consumer_sdk.testing.conformance.adapters import (
    AdapterHarness,
    AdapterSuite,
    QueueSuite,
    RebalancingLogSuite,
    Record,
    StandaloneLogSuite,
)
from consumer_sdk.testing.conformance.adapters.harness import Ability
from consumer_sdk.testing.memory import MemoryAdapter, MemoryBroker
from consumer_sdk.testing.memory.options import ConsumerKind


class MemoryHarness(AdapterHarness):
    """The in-memory broker, where a member that fell silent is soon put out."""

    abilities: ClassVar[frozenset[Ability]] = frozenset(
        {"crash", "gap", "grow", "recreate", "reset", "truncate", "unreadable"}
    )
    patience = 300.0
    quiet = 0.03

    def __init__(self) -> None:
        self.broker = MemoryBroker(session_timeout=0.3, rebalance_timeout=60.0)
        self._made = 0

    async def create_stream(self, partitions: int = 1) -> str:
        self._made += 1
        self.broker.create_stream(f"stream-{self._made}", partitions)
        return f"stream-{self._made}"

    def make_adapter(self, stream: str, group: str, **options: Any) -> Adapter:
        return MemoryAdapter(self.broker, stream, group=group, **options)

    async def append(
        self, stream: str, records: Sequence[Record], partition: int = 0
    ) -> list[Position]:
        return [
            self.broker.append(
                stream,
                record.value,
                key=record.key,
                headers=record.headers,
                timestamp=record.timestamp,
                partition=partition,
            )[1]
            for record in records
        ]

    async def crash(self, adapter: Adapter) -> None:
        assert isinstance(adapter, MemoryAdapter)
        adapter.crash()

    async def append_unreadable(self, stream: str) -> None:
        _, position = self.broker.append(stream, b"bytes", partition=0)
        self.broker.damage(stream, 0, [position])

    async def skip(self, stream: str, partition: int = 0) -> None:
        self.broker.skip(stream, partition, 3)

    async def truncate(self, stream: str, before: Position, partition: int = 0) -> None:
        self.broker.truncate(stream, partition, before)

    async def grow(self, stream: str, total: int) -> None:
        self.broker.add_partitions(stream, total)

    async def reset(self, stream: str, group: str, position: Position, partition: int = 0) -> None:
        self.broker.reset(group, Partition(stream, str(partition)), position)

    async def recreate(self, stream: str) -> None:
        self.broker.delete_stream(stream)
        self.broker.create_stream(stream)


class TestMemoryAdapter(AdapterSuite):
    """Every case of the suite."""

    @pytest.fixture
    def harness(self) -> AdapterHarness:
        """A broker of its own for each case."""
        return MemoryHarness()


class StandaloneHarness(MemoryHarness):
    """The same broker, and consumers without a group."""

    shares_partitions = False

    def make_adapter(self, stream: str, group: str, **options: Any) -> Adapter:
        return MemoryAdapter(self.broker, stream, **options)


class TestStandalone(StandaloneLogSuite):
    """Each consumer reads all partitions."""

    @pytest.fixture
    def harness(self) -> AdapterHarness:
        """A broker of its own for each case."""
        return StandaloneHarness()


class SubscriptionHarness(MemoryHarness):
    """The same broker with a subscription."""

    abilities: ClassVar[frozenset[Ability]] = MemoryHarness.abilities | {
        "backlog",
        "disconnect",
        "entry",
        "late",
    }

    def __init__(self, kind: ConsumerKind, *, batch_index_acks: bool = False) -> None:
        super().__init__()
        self._options: dict[str, Any] = {
            "subscription": kind,
            "batch_index_acks": batch_index_acks,
        }

    def make_adapter(self, stream: str, group: str, **options: Any) -> Adapter:
        return super().make_adapter(stream, group, **self._options | options)

    async def append(
        self, stream: str, records: Sequence[Record], partition: int = 0
    ) -> list[Position]:
        return [(place, 0) for place in await super().append(stream, records, partition)]

    async def disconnect(self, adapter: Adapter) -> None:
        assert isinstance(adapter, MemoryAdapter)
        adapter.disconnect()

    async def backlog(self, stream: str, group: str) -> int:
        return self.broker.backlog(group, stream)

    async def append_late(self, stream: str, records: Sequence[Record]) -> None:
        places = await super().append(stream, records)
        self.broker.withhold(stream, 0, places)

    async def release(self, stream: str) -> None:
        self.broker.withhold(stream, 0, ())

    async def append_entry(self, stream: str, records: Sequence[Record]) -> None:
        self.broker.append_entry(stream, [(record.key, record.value) for record in records])


class TestFailover(RebalancingLogSuite):
    """A log that hears of each record."""

    @pytest.fixture
    def harness(self) -> AdapterHarness:
        """A broker of its own for each case."""
        return SubscriptionHarness("failover")


class TestShared(QueueSuite):
    """A queue, which forgets acks of a part of an entry."""

    @pytest.fixture
    def harness(self) -> AdapterHarness:
        """A broker of its own for each case."""
        return SubscriptionHarness("shared")


class TestKeyShared(QueueSuite):
    """A queue that keeps keys together, and acks of a part of an entry."""

    @pytest.fixture
    def harness(self) -> AdapterHarness:
        """A broker of its own for each case."""
        return SubscriptionHarness("key_shared", batch_index_acks=True)
