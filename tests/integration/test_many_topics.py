"""A group that reads 1 200 partitions of 60 topics by a pattern, on a real Kafka."""

from __future__ import annotations

import asyncio
import uuid
from collections import Counter
from collections.abc import Sequence
from contextlib import AsyncExitStack
from typing import Any

import pytest
from aiokafka import AIOKafkaProducer

from consumer_sdk import Consumer, Message
from consumer_sdk.adapters.kafka import KafkaAdapter
from consumer_sdk.testing.servers import KafkaServer
from tests.integration.field import until

pytestmark = [pytest.mark.kafka, pytest.mark.campaign]

TOPICS, LATER, PARTITIONS = 50, 10, 20
COOPERATIVE = {"partition_assignment_strategy": ["cooperative-sticky"]}


class Group:
    """Members that read all topics with a prefix.

    Attributes:
        topics: those that there are.
        seen: how often each record was handled.
    """

    def __init__(self, server: KafkaServer, producer: AIOKafkaProducer, **options: Any) -> None:
        self.topics: list[str] = []
        self.seen: Counter[bytes] = Counter()
        self._produced: set[bytes] = set()
        self._server, self._producer, self._options = server, producer, options
        self._prefix = f"many-{uuid.uuid4().hex[:8]}"

    async def create(self, count: int) -> None:
        """So many topics more."""
        first = len(self.topics)
        for number in range(first, first + count):
            self.topics.append(f"{self._prefix}-{number}")
            await self._server.create_topic(self.topics[-1], partitions=PARTITIONS)

    async def produce(self, name: str) -> None:
        """Two records into each partition."""
        sends = []
        for topic in self.topics:
            for n in range(2 * PARTITIONS):
                value = f"{topic} {n} {name}".encode()
                self._produced.add(value)
                sends.append(await self._producer.send(topic, value, partition=n % PARTITIONS))
        await asyncio.gather(*sends)

    async def join(self) -> tuple[Consumer, asyncio.Task[None]]:
        """Another member, and what runs it."""
        adapter = KafkaAdapter(
            pattern=f"{self._prefix}-.*",
            bootstrap_servers=self._server.bootstrap_servers,
            group=self._prefix,
            metadata_max_age_ms=3000,
            **self._options,
        )
        consumer = Consumer(adapter)
        return consumer, asyncio.create_task(consumer.run(self._handle, handle_signals=False))

    async def _handle(self, message: Message) -> None:
        self.seen[message.value or b""] += 1

    async def until_done(self, *running: asyncio.Task[None]) -> None:
        """All that was produced was handled, once."""
        await until(lambda: self.seen.keys() == self._produced, "all is handled", *running)
        assert set(self.seen.values()) == {1}

    async def until_even(self, consumers: Sequence[Consumer]) -> None:
        """Each member has its part."""
        part = len(self.topics) * PARTITIONS // len(consumers)
        await until(
            lambda: all(part <= len(c.stats().partitions) <= part + 1 for c in consumers),
            f"each member has {part} partitions",
        )


@pytest.mark.parametrize(
    "options", [COOPERATIVE, {"protocol": "consumer"}], ids=["cooperative", "consumer"]
)
async def test_each_record_comes_once_while_topics_and_members_come_and_go(
    kafka_server: KafkaServer, options: dict[str, Any]
) -> None:
    """Three members, ten topics more, a fourth member, and one that leaves."""
    async with AsyncExitStack() as stack:
        producer = AIOKafkaProducer(bootstrap_servers=kafka_server.bootstrap_servers, linger_ms=20)
        group = Group(kafka_server, await stack.enter_async_context(producer), **options)
        await group.create(TOPICS)
        members = [await group.join() for _ in range(3)]
        for what in ("begin", "topics", "join", "leave"):
            match what:
                case "topics":
                    await group.create(LATER)
                case "join":
                    members.append(await group.join())
                case "leave":
                    consumer, running = members.pop(0)
                    consumer.stop()
                    await running
            await group.produce(what)
            await group.until_done(*(running for _, running in members))
            await group.until_even([consumer for consumer, _ in members])
        for consumer, running in members:
            consumer.stop()
            await running
