"""A Kafka that dies, hangs and comes back under a reader."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

import pytest

from consumer_sdk.adapters.kafka.ranges import KafkaRanges
from consumer_sdk.errors import TransientAdapterError
from consumer_sdk.records import OutcomeKind, Partition, StartPoint
from consumer_sdk.testing.conformance.adapters import Record
from tests.adapters.kafka.harness import KafkaHarness
from tests.adapters.kafka.ranges.reads import offsets, read, span

if TYPE_CHECKING:
    from consumer_sdk.testing.servers import KafkaServer

pytestmark = pytest.mark.kafka

ROWS = [Record(b"x" * 1_000) for _ in range(1_000)]


@pytest.fixture
async def own(own_kafka_server: KafkaServer) -> AsyncIterator[KafkaHarness]:
    """A Kafka that may die."""
    async with KafkaHarness(own_kafka_server.bootstrap_servers) as harness:
        harness.patience = 300.0
        yield harness


async def open_reader(harness: KafkaHarness, topic: str, **options: float | str) -> KafkaRanges:
    """A reader with the options."""
    made = KafkaRanges(topic, bootstrap_servers=harness.servers, **options)  # type: ignore[arg-type]  # options of several types
    await made.open()
    return made


@pytest.mark.campaign
async def test_broker_that_restarts_in_the_middle_of_a_range_is_waited_for(
    own: KafkaHarness, own_kafka_server: KafkaServer
) -> None:
    """Each record comes once and in order, as if nothing had happened; questions are asked again."""
    topic = await own.create_stream()
    await own.append(topic, ROWS)
    reader = await open_reader(own, topic, read_timeout=60.0)
    try:
        found: list[int] = []
        async for part in reader.read_range(span(topic, 0, len(ROWS)), max_bytes=50_000):
            if not found:
                await own_kafka_server.kill()
                await own_kafka_server.restart()
            found += part.positions
        assert found == list(range(len(ROWS)))
        partitions = await reader.partitions()
        ends = await reader.positions(partitions, StartPoint.LATEST)
        assert list(ends.values()) == [len(ROWS)]
    finally:
        await reader.aclose()


@pytest.mark.campaign
async def test_broker_that_hangs_is_given_up_in_time(
    own: KafkaHarness, own_kafka_server: KafkaServer
) -> None:
    """Spark trap 18: reading, asking and committing end in their time, and go on later."""
    topic = await own.create_stream()
    await own.append(topic, ROWS[:10])
    reader = await open_reader(own, topic, read_timeout=1.0, connect_timeout=300.0, group="g")
    (one,) = partitions = await until_answered(reader)
    try:
        own_kafka_server.pause()
        try:
            async with asyncio.timeout(300):
                with pytest.raises(TransientAdapterError, match="given up after 1 s"):
                    await read(reader, span(topic, 0, 10))
                with pytest.raises(TransientAdapterError, match="given up after 1 s"):
                    await reader.positions(partitions, StartPoint.LATEST)
                assert (await reader.commit({one: 5}))[one].kind is OutcomeKind.RETRY
        finally:
            own_kafka_server.resume()
        async with asyncio.timeout(300):
            while not (found := await read_or_nothing(reader, topic)):
                await asyncio.sleep(0.1)
        assert found == list(range(10))
    finally:
        await reader.aclose()


async def until_answered(reader: KafkaRanges) -> Sequence[Partition]:
    """The partitions; a broker that is busy takes longer to answer than this reader waits."""
    async with asyncio.timeout(300):
        while True:
            with suppress(TransientAdapterError):
                return await reader.partitions()


async def read_or_nothing(reader: KafkaRanges, topic: str) -> list[int]:
    """As a task that is tried again."""
    try:
        return offsets(await read(reader, span(topic, 0, 10)))
    except TransientAdapterError:
        return []


@pytest.mark.campaign
async def test_whoever_pauses_for_longer_than_a_request_may_take_reads_on(
    own: KafkaHarness,
) -> None:
    """The answer that was on its way has failed meanwhile: it is asked again."""
    topic = await own.create_stream()
    await own.append(topic, ROWS)
    reader = await open_reader(own, topic, read_timeout=2.0)
    try:
        found: list[int] = []
        async for part in reader.read_range(span(topic, 0, len(ROWS)), max_bytes=100_000):
            if not found:
                for connection in list(reader._connection.cluster._connections._made.values()):
                    connection.close()
            found += part.positions
        assert found == list(range(len(ROWS)))
    finally:
        await reader.aclose()
