"""Fetching by the connection layer: what it says, and on a real Kafka."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from itertools import pairwise
from typing import Any

import pytest
from aiokafka import TopicPartition

from consumer_sdk.adapters.kafka.client.cluster import Cluster
from consumer_sdk.adapters.kafka.client.cluster_metadata import Leader
from consumer_sdk.adapters.kafka.client.connections import Channel
from consumer_sdk.adapters.kafka.client.lookups import LATEST, ListedOffset
from consumer_sdk.adapters.kafka.fetch.cursors import FetchOptions
from consumer_sdk.adapters.kafka.fetch.fetcher import PATIENCE, FetchChannel
from tests.adapters.kafka.fetch.test_fetcher import Reader, virtual
from tests.adapters.kafka.harness import KafkaHarness
from tests.adapters.kafka.world import numbered

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


@pytest.mark.kafka
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


@pytest.mark.kafka
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


# -- without a broker ------------------------------------------------------------------------------


class ScriptedCluster:
    """What a channel needs of the connection layer.

    Attributes:
        sent: node, request, and the channel if one was named.
        refreshes: how often fresh metadata were asked for.
        leaders: by partition, as the metadata have them.
    """

    def __init__(self) -> None:
        self.sent: list[tuple[Any, ...]] = []
        self.refreshes = 0
        self.is_silent = False
        self.leaders: dict[TopicPartition, Leader] = {}
        self.brokers = {0: "a", 2: "b"}
        self.listeners: list[Callable[[Any], None]] = []

    @property
    def metadata(self) -> ScriptedCluster:
        """It stands for them, too."""
        return self

    async def send(self, *given: Any, channel: Channel | None = None) -> str:
        """As `Cluster` does; so with the others."""
        self.sent.append((*given, channel))
        if self.is_silent:
            await asyncio.Event().wait()
        return "answer"

    def known_leader(self, tp: TopicPartition) -> Leader | None:
        return self.leaders.get(tp)

    def request_refresh(self) -> None:
        self.refreshes += 1

    def add_listener(self, listener: Callable[[Any], None], *, each: bool) -> None:
        assert each
        self.listeners.append(listener)

    def remove_listener(self, listener: Callable[[Any], None]) -> None:
        self.listeners.remove(listener)


TP = TopicPartition("t", 0)


def channel_of(cluster: Any) -> FetchChannel:
    """A channel of a scripted cluster."""
    return FetchChannel(cluster)


async def test_fetches_have_connections_of_their_own_and_those_aside_have_not() -> None:
    """What goes aside must not wait behind another fetch."""
    cluster = ScriptedCluster()
    channel = channel_of(cluster)
    assert await channel.send(2, "fetch") == "answer"
    assert await channel.send_aside(2, "aside") == "answer"
    assert cluster.sent == [(2, "fetch", Channel.FETCHES), (2, "aside", None)]


@virtual
async def test_request_aside_that_is_not_answered_is_given_up() -> None:
    """Its partitions are asked for in the session, then."""
    cluster = ScriptedCluster()
    cluster.is_silent = True
    time = asyncio.get_running_loop().time
    began = time()
    with pytest.raises(TimeoutError):
        await channel_of(cluster).send_aside(2, "aside")
    assert time() - began == pytest.approx(PATIENCE)


@pytest.mark.parametrize(
    "leader, known",
    [(None, None), (Leader(-1, 4), None), (Leader(0, 4), (0, 4)), (Leader(3, -1), (3, -1))],
)
def test_leader_is_a_node_or_there_is_none(
    leader: Leader | None, known: tuple[int, int] | None
) -> None:
    """Metadata say -1 while one is elected."""
    cluster = ScriptedCluster()
    if leader is not None:
        cluster.leaders[TP] = leader
    assert channel_of(cluster).leader_of(TP) == known


def test_channel_knows_the_nodes_and_hears_of_metadata() -> None:
    """Those of the last metadata."""
    cluster = ScriptedCluster()
    channel = channel_of(cluster)
    assert [channel.has_node(node) for node in range(3)] == [True, False, True]
    channel.refresh()
    assert cluster.refreshes == 1
    heard: list[Any] = []
    channel.add_listener(heard.append)
    assert cluster.listeners == [heard.append]
    channel.remove_listener(heard.append)
    assert cluster.listeners == []
