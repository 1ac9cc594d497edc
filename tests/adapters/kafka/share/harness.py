"""A real Kafka, as the suite of queues uses it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, ClassVar

from aiokafka import AIOKafkaProducer

from consumer_sdk.abc import Adapter
from consumer_sdk.adapters.kafka import KafkaAdapter
from consumer_sdk.adapters.kafka.client.connections import Channel
from consumer_sdk.adapters.kafka.share.adapter import ShareGroupAdapter
from consumer_sdk.adapters.kafka.share.consumer import ShareConsumer
from consumer_sdk.records import Position
from consumer_sdk.testing.conformance.adapters import Record
from consumer_sdk.testing.conformance.adapters.harness import Ability
from tests.adapters.kafka.harness import KafkaHarness

__all__ = ["ShareHarness", "consumer_of"]


BATCHES = 20
"""That records are written in."""
FETCH = 700
"""Bytes that a member is given at a time: less than 40 records take, so that no member gets all of them."""


class ShareHarness(KafkaHarness):
    """Topics and share groups of one test.

    Args:
        options: of all adapters.
    """

    abilities: ClassVar[frozenset[Ability]] = frozenset({"crash", "unreadable"})
    quiet = 0.4
    members_hold_all = False

    def __init__(self, servers: str, **options: Any) -> None:
        super().__init__(servers)
        self._options = options

    def make_adapter(
        self, stream: str, group: str | None, *, topics: Sequence[str] = (), **options: Any
    ) -> KafkaAdapter:
        defaults = {"metadata_max_age_ms": 300, "fetch_max_wait_ms": 100, "retry_backoff_ms": 50}
        defaults |= {"fetch_max_bytes": FETCH}
        return KafkaAdapter(
            *(topics or [stream]),
            bootstrap_servers=self.servers,
            share_group=f"{group}-{self.uid}",
            rebalance_timeout=60.0,
            **(defaults | self._options | options),
        )

    async def append(
        self,
        stream: str,
        records: Sequence[Record],
        partition: int = 0,
        producer: AIOKafkaProducer | None = None,
    ) -> list[Position]:
        """In several batches: a fetch brings whole ones."""
        places: list[Position] = []
        step = max(len(records) // BATCHES, 1)
        for at in range(0, len(records), step):
            some = records[at : at + step]
            places += await super().append(stream, some, partition, producer)
        return places

    async def disconnect(self, adapter: Adapter) -> None:
        """The broker ends a session with its connection, and releases what was acquired by it."""
        for (_node, channel), connection in connections_of(adapter).items():
            if channel is Channel.FETCHES:
                connection.close()

    async def crash(self, adapter: Adapter) -> None:
        """Its tasks end and its connections break, without a word to the broker."""
        consumer = consumer_of(adapter)
        runner = consumer._runner
        assert runner is not None
        assert runner._task is not None
        runner._task.cancel()
        await asyncio.wait({runner._task})
        runner._task = None  # so that its later close does not leave the group
        consumer._leaders.clear()
        consumer.abort()
        for connection in list(connections_of(adapter).values()):
            connection.close()


def consumer_of(adapter: Adapter) -> ShareConsumer:
    """What is behind an open adapter."""
    assert isinstance(adapter, ShareGroupAdapter)
    assert adapter._member is not None
    return adapter._member


def connections_of(adapter: Adapter) -> dict[Any, Any]:
    """Its connections, by node and channel."""
    return consumer_of(adapter)._cluster._connections._made
