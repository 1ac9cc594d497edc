"""Fetching by the connection layer, on a real Kafka."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from itertools import pairwise
from typing import Any

import pytest
from aiokafka import TopicPartition

from consumer_sdk.adapters.kafka.client.cluster import Cluster
from consumer_sdk.adapters.kafka.client.lookups import LATEST, ListedOffset
from consumer_sdk.adapters.kafka.fetch.cursors import FetchOptions
from consumer_sdk.adapters.kafka.fetch.fetcher import FetchChannel
from tests.adapters.kafka.fetch.test_fetcher import Reader
from tests.adapters.kafka.harness import KafkaHarness
from tests.adapters.kafka.world import numbered

pytestmark = pytest.mark.kafka

HANG = 300.0
"""Seconds that only something that hangs takes."""


@pytest.fixture
async def cluster(harness: KafkaHarness) -> AsyncIterator[Cluster]:
    """Opened; it watches nothing yet."""
    made = Cluster({"bootstrap_servers": harness.servers})
    await made.open(HANG)
    yield made
    await made.aclose()


def reading(cluster: Cluster, options: FetchOptions) -> Reader:
    """Reads from the brokers themselves."""
    channel: Any = FetchChannel(cluster)
    return Reader(channel, options)


async def until_read(reader: Reader, tps: list[TopicPartition], count: int) -> None:
    """Takes until so many records of each partition are there."""
    async with asyncio.timeout(HANG):
        while any(len(reader.seen[tp]) < count for tp in tps):
            await reader.read(0.01)


async def test_partitions_are_fetched_from_their_leaders(
    harness: KafkaHarness, cluster: Cluster
) -> None:
    """Each record comes once, in order, with its epoch; a topic that is watched later is found, too."""
    topic = await harness.create_stream(2)
    tps = [TopicPartition(topic, n) for n in range(2)]
    for tp in tps:
        await harness.append(topic, numbered(0, 20), tp.partition)
    reader = reading(cluster, FetchOptions(backoff=0.01))
    for tp in tps:
        reader.open(tp).topic_id = cluster.topic_id(topic)
    cluster.watch({topic})
    await until_read(reader, tps, 20)
    await harness.append(topic, numbered(20, 30))
    await until_read(reader, tps[:1], 30)
    await reader.fetcher.aclose()
    assert [reader.seen[tp] for tp in tps] == [list(range(30)), list(range(20))]
    assert {cursor.last_epoch for cursor in reader.cursors.values()} == {0}
    assert not reader.faults


async def test_fetch_that_waits_holds_up_no_question(
    harness: KafkaHarness, cluster: Cluster
) -> None:
    """A broker answers one request of a connection after another: fetches have one of their own."""
    topic = await harness.create_stream()
    tp = TopicPartition(topic, 0)
    cluster.watch({topic})
    await cluster.refresh()
    reader = reading(cluster, FetchOptions(max_wait=int(HANG * 1000)))
    reader.open(tp)
    async with asyncio.timeout(HANG / 3):
        while cluster.calls < 3:  # the fetch waits for records from then on
            await reader.read(0.01)
        found, _failures = await cluster.list_offsets({tp: LATEST})
        while not found:  # a busy broker learns late that it leads a new partition
            await reader.read(0.01)
            found, _failures = await cluster.list_offsets({tp: LATEST})
        assert found == {tp: ListedOffset(0, 0)}
        await harness.append(topic, numbered(0, 5))
        await until_read(reader, [tp], 5)
    await reader.fetcher.aclose()
    assert all(a < b for a, b in pairwise(reader.seen[tp]))
