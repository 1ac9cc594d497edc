"""The in-memory adapter keeps the adapters' contract."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import pytest

from consumer_sdk.abc import Adapter
from consumer_sdk.adapters.memory import MemoryAdapter, MemoryBroker
from consumer_sdk.records import Position
from consumer_sdk.testing.conformance.adapter_harness import Ability
from consumer_sdk.testing.conformance.adapters import AdapterHarness, AdapterSuite, Record


class MemoryHarness(AdapterHarness):
    """The in-memory broker with short time-outs."""

    abilities: ClassVar[frozenset[Ability]] = frozenset(
        {"crash", "gap", "grow", "recreate", "truncate"}
    )
    patience = 10.0
    quiet = 0.03

    def __init__(self) -> None:
        self.broker = MemoryBroker(session_timeout=0.3, rebalance_timeout=3.0)
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

    async def skip(self, stream: str, partition: int = 0) -> None:
        self.broker.skip(stream, partition, 3)

    async def truncate(self, stream: str, before: Position, partition: int = 0) -> None:
        self.broker.truncate(stream, partition, before)

    async def grow(self, stream: str, total: int) -> None:
        self.broker.add_partitions(stream, total)

    async def recreate(self, stream: str) -> None:
        self.broker.delete_stream(stream)
        self.broker.create_stream(stream)


class TestMemoryAdapter(AdapterSuite):
    """Every case of the suite."""

    @pytest.fixture
    def harness(self) -> AdapterHarness:
        """A broker of its own for each case."""
        return MemoryHarness()
