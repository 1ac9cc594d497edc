"""The connection layer on a real Kafka: what its answers hold, and who may ask."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from functools import partial
from typing import Any, TypeAlias

import pytest
from aiokafka import TopicPartition
from aiokafka.errors import KafkaError
from aiokafka.protocol.group import HeartbeatRequest

from consumer_sdk.adapters.kafka.client.cluster import Cluster
from consumer_sdk.adapters.kafka.client.lookups import (
    EARLIEST,
    LATEST,
    Coordinator,
    CoordinatorKind,
    GroupOffset,
    ListedOffset,
)
from consumer_sdk.adapters.kafka.client.topics import describe_topics
from consumer_sdk.errors import AdapterError, ConfigurationError, TransientAdapterError
from consumer_sdk.testing.conformance.adapters import Record
from tests.adapters.kafka.client.test_listeners import PASSWORD, Expired
from tests.adapters.kafka.harness import KafkaHarness
from tests.adapters.kafka.world import World, numbered

pytestmark = pytest.mark.kafka

HANG = 300.0
"""Seconds that only something that hangs takes."""
CONSUMER_GROUP_HEARTBEAT = 68
SASL: dict[str, Any] = {"security_protocol": "SASL_PLAINTEXT"}
Opener: TypeAlias = Callable[..., Awaitable[Cluster]]


@pytest.fixture
async def connect(harness: KafkaHarness) -> AsyncIterator[Opener]:
    """Opens clusters that are closed with the test."""
    async with AsyncExitStack() as stack:

        async def opened(*topics: str, **options: Any) -> Cluster:
            made = Cluster({"bootstrap_servers": harness.servers, **options}, topics)
            stack.push_async_callback(made.aclose)
            await made.open(HANG)
            return made

        yield opened


async def test_metadata_follow_a_topic(harness: KafkaHarness, connect: Opener) -> None:
    """It grows, is deleted, and is made again with another id."""
    topic = await harness.create_stream()
    tp, heard = TopicPartition(topic, 0), list[int]()
    cluster = await connect(topic)
    node, epoch = cluster.leader_of(tp)
    assert (node in cluster.metadata.brokers, epoch >= 0) == (True, True)
    first = cluster.topic_id(topic)
    assert first
    assert cluster.metadata.topic_of(first) == topic
    cluster.add_listener(lambda metadata: heard.append(len(metadata.partitions(topic))))
    await harness.grow(topic, 3)
    async with asyncio.timeout(HANG):
        while heard != [3]:
            await cluster.refresh()
        await harness.recreate(topic)
        while cluster.topic_id(topic) in (first, None):
            await cluster.refresh()
        await harness.delete(topic)
        while not cluster.is_gone(tp):
            await asyncio.sleep(0.05)
            await cluster.refresh()
    assert topic not in await harness.admin.list_topics()  # asking has not made it


async def test_all_topics_are_described_and_watched(harness: KafkaHarness, connect: Opener) -> None:
    """For patterns."""
    topic = await harness.create_stream(2)
    cluster = await connect()
    assert (await describe_topics(cluster, None))[topic].partitions == {0, 1}
    assert (await describe_topics(cluster, [f"{topic}-absent"]))[f"{topic}-absent"].is_absent
    assert topic not in cluster.metadata.topics
    cluster.watch(None)
    await cluster.refresh()
    assert cluster.metadata.partitions(topic) == {0, 1}


async def test_offsets_come_with_epochs(harness: KafkaHarness, connect: Opener) -> None:
    """Where the log begins and ends, and where a time lies."""
    topic = await harness.create_stream()
    tp = TopicPartition(topic, 0)
    await harness.append(topic, [Record(b"v", timestamp=1_000 * n) for n in range(5)])
    await harness.truncate(topic, 2)
    cluster = await connect(topic)
    epoch = cluster.leader_of(tp).epoch
    for time, at in ((EARLIEST, 2), (LATEST, 5), (2_500, 3)):
        assert await cluster.list_offsets({tp: time}) == ({tp: ListedOffset(at, epoch)}, {})
    assert await cluster.list_offsets({tp: 9_000}) == ({tp: None}, {})


async def test_open_transaction_ends_what_is_committed(
    harness: KafkaHarness, connect: Opener
) -> None:
    """With the level of read_committed."""
    topic = await harness.create_stream()
    tp = TopicPartition(topic, 0)
    await harness.append(topic, numbered(0, 2))
    cluster = await connect(topic)
    async with harness.transaction() as producer:
        await harness.append(topic, numbered(2, 5), producer=producer)
        for level, end in ((0, 5), (1, 2)):
            found, _failures = await cluster.list_offsets({tp: LATEST}, level=level)
            at = found[tp]
            assert at is not None
            assert at.offset == end


async def test_group_is_asked_at_its_coordinator(world: World, connect: Opener) -> None:
    """What it has committed; who is no member may not send heartbeats."""
    harness, group = world.kafka, f"{world.group}-{world.kafka.uid}"
    topic = await harness.create_stream(2)
    await harness.append(topic, numbered(0, 3))
    await harness.reset(topic, world.group, 2)
    cluster = await connect(topic)
    one, two = TopicPartition(topic, 0), TopicPartition(topic, 1)
    assert await cluster.committed(group, [one, two]) == {one: GroupOffset(2, ""), two: None}
    answer = await cluster.send(Coordinator(group), HeartbeatRequest(group, 1, "nobody"))
    assert answer.error_code == 25
    transactions = Coordinator("t", CoordinatorKind.TRANSACTION)
    found = await patiently(lambda: cluster.coordinator(transactions))
    assert found in cluster.metadata.brokers


async def patiently(ask: Callable[[], Awaitable[Any]]) -> Any:
    """The answer; a broker makes the topics of its coordinators when it is first asked."""
    async with asyncio.timeout(HANG):
        while True:
            try:
                return await ask()
            except KafkaError as error:
                if not error.retriable:
                    raise
                await asyncio.sleep(0.05)


async def test_versions_tell_what_the_broker_has(connect: Opener) -> None:
    """Kafka 4: the consumer protocol."""
    cluster = await connect()
    (node,) = cluster.metadata.brokers
    for to in (None, node, Coordinator("g")):
        versions = await patiently(partial(cluster.versions, to))
        assert versions[CONSUMER_GROUP_HEARTBEAT][0] == 0


async def test_password_opens_and_is_in_no_log(
    harness: KafkaHarness, sasl_servers: str, connect: Opener, caplog: pytest.LogCaptureFixture
) -> None:
    """At DEBUG the client prints whole requests."""
    topic = await harness.create_stream()
    with caplog.at_level(logging.DEBUG):
        cluster = await connect(topic, bootstrap_servers=sasl_servers, **SASL, **PASSWORD)
        await cluster.list_offsets({TopicPartition(topic, 0): LATEST})
        await cluster.aclose()
    assert "SaslAuthenticate" in caplog.text
    assert PASSWORD["sasl_plain_password"] not in caplog.text


@pytest.mark.parametrize(
    "options, kind, said",
    [
        (SASL | PASSWORD | {"sasl_plain_password": "wrong"}, AdapterError, "AuthenticationFailed"),
        (
            SASL | {"sasl_mechanism": "OAUTHBEARER", "sasl_oauth_token_provider": Expired()},
            AdapterError,
            "that a token is still valid",
        ),
        ({}, ConfigurationError, "speaks SASL_PLAINTEXT: give security_protocol"),
    ],
    ids=["password", "token", "protocol"],
)
async def test_whoever_is_refused_is_told_at_once(
    sasl_servers: str, options: dict[str, Any], kind: type[Exception], said: str
) -> None:
    """Trying again would not help."""
    cluster = Cluster({"bootstrap_servers": sasl_servers, **options})
    try:
        with pytest.raises(kind, match=said) as caught:
            await cluster.open(HANG)
        assert not isinstance(caught.value, TransientAdapterError)
    finally:
        await cluster.aclose()
