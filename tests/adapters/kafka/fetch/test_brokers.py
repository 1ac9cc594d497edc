"""Fetches from real brokers over the connection layer: another past, a replica near by, a topic made again."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest
from aiokafka import TopicPartition
from aiokafka.errors import OffsetOutOfRangeError

from consumer_sdk.adapters.kafka.client.cluster import Cluster
from consumer_sdk.adapters.kafka.client.topics import describe_topics
from consumer_sdk.adapters.kafka.fetch.cursor import Chunk, Cursor, Fault
from consumer_sdk.adapters.kafka.fetch.cursors import FetchOptions
from consumer_sdk.adapters.kafka.fetch.fetcher import FetchChannel, Fetcher
from consumer_sdk.errors import PositionOutOfRangeError
from tests.adapters.kafka.harness import KafkaHarness
from tests.adapters.kafka.ranges.test_replicas import P, cluster_of_two, fill
from tests.adapters.kafka.world import numbered

if TYPE_CHECKING:
    from consumer_sdk.testing.servers import KafkaServer

pytestmark = pytest.mark.kafka

QUICK = FetchOptions(max_wait=50, max_partition_bytes=4096)


class Reader:
    """Cursors over the connection layer."""

    def __init__(self, cluster: Cluster, options: FetchOptions) -> None:
        self.cluster = cluster
        self._news = asyncio.Event()
        self.fetcher = Fetcher(FetchChannel(cluster), options, self._news.set)

    def open(self, tp: TopicPartition, position: int = 0, topic_id: bytes | None = None) -> Cursor:
        """Reads from an offset on."""
        cursor = Cursor(tp, topic_id)
        cursor.seek(position)
        self.fetcher.add(cursor)
        cursor.resume()
        return cursor

    async def next(self, cursor: Cursor) -> Chunk | Fault:
        """What comes next; it is read then."""
        async with asyncio.timeout(100):
            while (item := cursor.front) is None:
                self._news.clear()
                await self._news.wait()
        if isinstance(item, Chunk):
            cursor.consumed_to(item.end)
        cursor.advance()
        self.fetcher.kick()
        return item

    async def read_to(self, cursor: Cursor, end: int) -> None:
        """Everything up to an offset, in order."""
        while cursor.position < end:
            position = cursor.position
            item = await self.next(cursor)
            assert isinstance(item, Chunk), item
            assert item.position == position


@asynccontextmanager
async def reading(servers: str, topic: str, options: FetchOptions = QUICK) -> AsyncIterator[Reader]:
    """A reader of a topic."""
    cluster = Cluster({"bootstrap_servers": servers}, [topic])
    await cluster.open(30)
    reader = Reader(cluster, options)
    try:
        yield reader
    finally:
        await reader.fetcher.aclose()
        await cluster.aclose()


async def test_log_with_another_past_is_a_fault_that_names_both_offsets(
    own_kafka_server: KafkaServer,
) -> None:
    """KIP-320: the last record was of an epoch that ends before the position in this broker's log."""
    async with KafkaHarness(own_kafka_server.bootstrap_servers) as kafka:
        topic = await kafka.create_stream()
        await kafka.append(topic, numbered(0, 10))
        await own_kafka_server.restart()
        await kafka.append(topic, numbered(10, 20))
        tp = TopicPartition(topic, 0)
        async with reading(kafka.servers, topic) as reader:
            first = reader.open(tp)
            chunk = await reader.next(first)
            assert isinstance(chunk, Chunk)
            await reader.read_to(first, 20)
            assert first.last_epoch > 0
            cursor = Cursor(tp)
            cursor.seek(15)
            cursor.last_epoch = 0  # as if 14 had been read of the leader before, which wrote more
            reader.fetcher.add(cursor)
            cursor.resume()
            fault = await reader.next(cursor)
            assert isinstance(fault, Fault)
            assert isinstance(fault.error, PositionOutOfRangeError)
            assert "the position is 15" in str(fault.error)
            assert "only up to 10 (leader epoch 0)" in str(fault.error)


async def test_sessions_go_on_over_a_restart(own_kafka_server: KafkaServer) -> None:
    """The broker has forgotten them; nothing is lost or repeated."""
    async with KafkaHarness(own_kafka_server.bootstrap_servers) as kafka:
        topic = await kafka.create_stream()
        await kafka.append(topic, numbered(0, 300))
        async with reading(kafka.servers, topic) as reader:
            cursor = reader.open(TopicPartition(topic, 0))
            await reader.read_to(cursor, 300)
            await own_kafka_server.restart()
            await kafka.append(topic, numbered(300, 400))
            await reader.read_to(cursor, 400)


async def test_topic_that_was_made_again_is_not_read_on(harness: KafkaHarness) -> None:
    """By its id: the position of the old one would be one of the new one."""
    topic = await harness.create_stream()
    await harness.append(topic, numbered(0, 10))
    tp = TopicPartition(topic, 0)
    async with reading(harness.servers, topic) as reader:
        old = reader.cluster.topic_id(topic)
        cursor = reader.open(tp, topic_id=old)
        await reader.read_to(cursor, 10)
        await harness.admin.delete_topics([topic])
        await harness.create_topic(topic)
        async with asyncio.timeout(60):
            while (now := await _id_of(reader.cluster, topic)) in (old, None):
                await asyncio.sleep(0.01)  # a broker hears of it in its own time
        await harness.append(topic, numbered(0, 30))
        again = reader.open(tp, 15, now)
        chunk = await reader.next(again)
        assert isinstance(chunk, Chunk)
        assert cursor.is_closed
        stale = reader.open(tp, 10, old)  # as long as nobody has noticed
        for _ in range(20):
            answers = reader.fetcher.answers
            async with asyncio.timeout(60):
                while reader.fetcher.answers == answers:
                    await asyncio.sleep(0.01)
            assert not stale.queue
            if stale.rests_until:
                break
        assert stale.rests_until > 0


async def _id_of(cluster: Cluster, topic: str) -> bytes | None:
    return (await describe_topics(cluster, [topic]))[topic].topic_id


async def test_position_beyond_the_end_is_a_fault(harness: KafkaHarness) -> None:
    """And before the begin."""
    topic = await harness.create_stream()
    await harness.append(topic, numbered(0, 10))
    await harness.truncate(topic, 4)
    async with reading(harness.servers, topic) as reader:
        for position in (11, 3):
            item = await reader.next(reader.open(TopicPartition(topic, 0), position))
            assert isinstance(item, Fault)
            assert isinstance(item.error, OffsetOutOfRangeError)


@pytest.mark.campaign
async def test_replica_in_the_readers_rack_is_read() -> None:
    """KIP-392: the leader names it; a reader of another rack, or of none, reads the leader."""
    tp = TopicPartition(P.stream, int(P.id))
    async with cluster_of_two() as servers:
        await fill(servers)
        for rack, asked in (("b", {1, 2}), ("a", {1}), ("", {1})):
            async with reading(servers, tp.topic, QUICK._replace(rack=rack)) as reader:
                nodes = _noted(reader.cluster)
                await reader.read_to(reader.open(tp), 500)
                assert set(nodes) == asked


def _noted(cluster: Any) -> list[int]:
    """The nodes that are asked for records from now on."""
    nodes: list[int] = []
    send = cluster.send

    async def noted(node: int, request: Any, **options: Any) -> Any:
        if request.API_KEY == 1:
            nodes.append(node)
        return await send(node, request, **options)

    cluster.send = noted
    return nodes
