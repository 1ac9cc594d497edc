"""Columns of records, written to a real Kafka."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.errors import (
    ClusterAuthorizationFailedError,
    KafkaTimeoutError,
    NodeNotReadyError,
)

from consumer_sdk.adapters.kafka.client import topics
from consumer_sdk.adapters.kafka.producing.writing import KafkaWriter
from consumer_sdk.errors import AdapterError, ConfigurationError, TransientAdapterError
from consumer_sdk.record_writes import Outgoing
from consumer_sdk.testing.servers.ports import HOST, free_ports

if TYPE_CHECKING:
    from consumer_sdk.testing.servers import ExternalKafka, KafkaServer

pytestmark = pytest.mark.kafka


@pytest.fixture
async def topic(kafka_server: KafkaServer | ExternalKafka) -> str:
    """Give a topic with two partitions, whose batches may have 20 000 bytes."""
    name = f"writing-{uuid.uuid4().hex[:8]}"
    await kafka_server.create_topic(name, 2, max_message_bytes=20_000)
    return name


@pytest.fixture
async def writer(kafka_server: KafkaServer | ExternalKafka) -> AsyncIterator[KafkaWriter]:
    """Give a writer whose batches are smaller than that."""
    made = KafkaWriter(bootstrap_servers=kafka_server.bootstrap_servers, max_batch_size=4000)
    await made.open()
    yield made
    await made.aclose()


def numbers(topic: str, values: Sequence[int]) -> Outgoing:
    """Records whose values are numbers, for partition 1."""
    partitions = pa.array([1] * len(values), pa.int32())
    return Outgoing(topic, pa.array([b"%d" % each for each in values]), partitions=partitions)


async def test_a_partitions_records_are_in_the_order_of_the_calls(
    kafka_server: KafkaServer | ExternalKafka, writer: KafkaWriter, topic: str
) -> None:
    """However many batches they make; a flush counts what is acknowledged."""
    await writer.prepare(topic)
    for begin in range(0, 10_000, 1000):
        await writer.send(writer.pack(numbers(topic, range(begin, begin + 1000))))
    assert await writer.flush() == 10_000
    assert await writer.flush() == 0
    servers = kafka_server.bootstrap_servers
    async with AIOKafkaConsumer(
        topic, bootstrap_servers=servers, auto_offset_reset="earliest"
    ) as consumer:
        found = [int((await consumer.getone()).value) for _ in range(10_000)]
    assert found == [*range(10_000)]


async def test_what_the_broker_refuses_stays_a_failure(writer: KafkaWriter, topic: str) -> None:
    """Nobody takes a later flush for a success."""
    await writer.prepare(topic)
    large = Outgoing(topic, pa.array([b"x" * 30_000]))
    await writer.send(writer.pack(large))
    for _ in range(2):
        with pytest.raises(AdapterError, match=rf"topic {topic}: .*max.message.bytes of the topic"):
            await writer.flush()
    with pytest.raises(AdapterError, match=r"max.message.bytes"):
        await writer.send(writer.pack(numbers(topic, [1])))


async def test_a_topic_that_is_not_there_is_not_made(writer: KafkaWriter) -> None:
    """Its name may be a mistake."""
    for _ in range(2):
        with pytest.raises(ConfigurationError, match="topic 'missing-one' does not exist"):
            await writer.prepare("missing-one")


async def test_a_topic_that_was_made_a_moment_ago_is_waited_for(
    kafka_server: KafkaServer | ExternalKafka, writer: KafkaWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The broker that is asked may be the last one to hear of it."""
    name, describe = f"writing-{uuid.uuid4().hex[:8]}", topics.describe_topics

    async def slow(client: Any, names: Sequence[str]) -> dict[str, topics.Topic]:
        found = await describe(client, names)
        if found[name].is_absent:
            await kafka_server.create_topic(name)
        return found

    monkeypatch.setattr(topics, "describe_topics", slow)
    await writer.prepare(name)
    await writer.send(writer.pack(Outgoing(name, pa.array([b"1"]))))
    assert await writer.flush() == 1


async def test_a_broker_that_restarts_is_asked_again(
    writer: KafkaWriter, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For a topic, and to take a batch: a task would fail, and write all of its rows once more."""
    client = writer._producer.client
    once(monkeypatch, client, "send", NodeNotReadyError())
    await writer.prepare(topic)
    once(monkeypatch, writer._producer, "send_batch", KafkaTimeoutError())
    await writer.send(writer.pack(numbers(topic, range(2000))))
    assert await writer.flush() == 2000


async def test_a_refusal_to_start_says_what_to_do(
    kafka_server: KafkaServer | ExternalKafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An old broker gives an idempotent producer its id only with a permission on the cluster."""
    once(monkeypatch, AIOKafkaProducer, "start", ClusterAuthorizationFailedError())
    writer = KafkaWriter(bootstrap_servers=kafka_server.bootstrap_servers)
    with pytest.raises(AdapterError, match=r"ClusterAuthorizationFailed.* grant this principal"):
        await writer.open()
    await writer.aclose()


def test_idempotence_without_all_replicas_is_refused_at_once() -> None:
    """Not by a task, which would be tried again."""
    with pytest.raises(ConfigurationError, match="enable_idempotence=True needs acks='all'"):
        KafkaWriter(bootstrap_servers="h", acks=1, enable_idempotence=True)


def once(monkeypatch: pytest.MonkeyPatch, owner: object, name: str, error: Exception) -> None:
    """Has a method fail the first time."""
    work = getattr(owner, name)
    errors = [error]

    async def failing(*args: Any, **options: Any) -> Any:
        if errors:
            raise errors.pop()
        return await work(*args, **options)

    monkeypatch.setattr(owner, name, failing)


async def test_a_broker_that_is_away_is_a_transient_error() -> None:
    """After the time that it was given."""
    (port,) = free_ports(1)
    writer = KafkaWriter(bootstrap_servers=f"{HOST}:{port}", connect_timeout=0.2)
    with pytest.raises(TransientAdapterError):
        await writer.open()
    await writer.aclose()
