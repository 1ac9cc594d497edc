"""Groups and logs on a cluster of two brokers, one of which dies."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from typing import Any

import pytest
from aiokafka import AIOKafkaProducer, TopicPartition
from aiokafka.client import AIOKafkaClient
from aiokafka.errors import KafkaError

from consumer_sdk import Consumer, Message
from consumer_sdk.adapters.kafka import KafkaAdapter
from consumer_sdk.adapters.kafka.client.cluster import Cluster
from consumer_sdk.errors import PositionOutOfRangeError
from consumer_sdk.testing.servers.kafka import KafkaCluster
from tests.adapters.kafka.harness import KafkaHarness
from tests.adapters.kafka.world import World, numbered, values
from tests.integration.field import PATIENCE, place, until

pytestmark = [pytest.mark.kafka, pytest.mark.campaign]

PARTITIONS = 4
PROTOCOLS: dict[str, dict[str, Any]] = {
    "eager": {},
    "cooperative": {"partition_assignment_strategy": ["cooperative-sticky"]},
    "consumer": {"protocol": "consumer", "session_timeout": None},
}
STEADY = {"session_timeout": 60.0, "rebalance_timeout": 60.0}
"""No member is lost while a broker is missed."""


@pytest.fixture(scope="module")
def running_cluster() -> Iterator[KafkaCluster]:
    """Two brokers."""
    cluster = KafkaCluster(properties={"group.consumer.session.timeout.ms": 60_000})
    asyncio.run(cluster.start())
    try:
        yield cluster
    finally:
        asyncio.run(cluster.aclose())


@pytest.fixture
async def cluster(running_cluster: KafkaCluster) -> KafkaCluster:
    """Both run."""
    await running_cluster.start()
    return running_cluster


@pytest.fixture
async def kafka(cluster: KafkaCluster) -> AsyncIterator[KafkaHarness]:
    """Topics and groups of a test's own; each partition has two copies."""
    async with KafkaHarness(cluster.bootstrap_servers) as harness:
        harness.replicas = 2
        yield harness
        await cluster.start()  # the producer waits for whoever leads


class Team:
    """Two members of a group, and what they have handled."""

    def __init__(self, kafka: KafkaHarness, topic: str, group: str, protocol: str) -> None:
        self.kafka, self.topic, self.group = kafka, topic, group
        self.handled: dict[int, Counter[int]] = {n: Counter() for n in range(PARTITIONS)}
        self.adapters = [
            kafka.make_adapter(topic, group, **(STEADY | PROTOCOLS[protocol])) for _ in range(2)
        ]

    async def handle(self, message: Message) -> None:
        """Notes it."""
        partition, offset = place(message)
        self.handled[partition][offset] += 1

    def has_read(self, ends: Mapping[int, int]) -> bool:
        """All records before these."""
        return all(len(self.handled[partition]) >= end for partition, end in ends.items())

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Both consume until the end of the block."""
        consumers = [Consumer(adapter, flush_interval=0.1) for adapter in self.adapters]
        tasks = [
            asyncio.create_task(each.run(self.handle, handle_signals=False)) for each in consumers
        ]
        try:
            await until(lambda: self.shares == [2, 2], f"{self.group} shares", *tasks)
            yield
        finally:
            for consumer in consumers:
                consumer.stop()
            await asyncio.wait_for(asyncio.gather(*tasks), PATIENCE)

    @property
    def shares(self) -> list[int]:
        """How many partitions each member holds."""
        runners = [_runner(adapter) for adapter in self.adapters]
        return [0 if runner is None else len(runner._member.held) for runner in runners]

    @property
    def epochs(self) -> list[tuple[str, int]]:
        """Who the members are at the coordinator: a rebalance changes that."""
        members = [_runner(adapter)._member for adapter in self.adapters]
        return [(member.member_id, member.epoch) for member in members]

    async def until_committed(self, cluster: Cluster, ends: Mapping[int, int]) -> None:
        """Waits until the group stands at the end of each partition."""
        group, tps = f"{self.group}-{self.kafka.uid}", [TopicPartition(self.topic, p) for p in ends]
        found: dict[int, int] = {}
        async with asyncio.timeout(PATIENCE):
            while found != ends:
                with suppress(KafkaError):  # a broker that has just started knows no coordinator
                    told = await cluster.committed(group, tps)
                    found = {tp.partition: at.offset for tp, at in told.items() if at is not None}
                await asyncio.sleep(0.1)


def _runner(adapter: KafkaAdapter) -> Any:
    session: Any = adapter._opened
    membership = session and session._membership
    return membership and membership._runner


class Stream:
    """Records that come all the time; each is in both copies when it counts."""

    def __init__(self, producer: AIOKafkaProducer, topic: str) -> None:
        self._producer, self._topic = producer, topic
        self.ends = dict.fromkeys(range(PARTITIONS), 0)
        self.is_enough = False

    async def pour(self) -> None:
        """Until it is enough."""
        while not self.is_enough:
            await self.add()
            await asyncio.sleep(0.02)

    async def add(self) -> None:
        """One record for each partition."""
        for partition in self.ends:
            sent = await self._producer.send_and_wait(self._topic, b"x", partition=partition)
            self.ends[partition] = sent.offset + 1


async def coordinator_of(kafka: KafkaHarness, group: str) -> int:
    """The broker that keeps it."""
    async with asyncio.timeout(PATIENCE):
        while True:
            try:
                return int(await kafka.admin.find_coordinator(f"{group}-{kafka.uid}"))
            except KafkaError:
                await asyncio.sleep(0.1)


async def groups_on(kafka: KafkaHarness, node: int) -> dict[str, str]:
    """A name for a group of each protocol, all of which this broker keeps."""
    found: dict[str, str] = {}
    for protocol in PROTOCOLS:
        number = 0
        while await coordinator_of(kafka, name := f"{protocol}{number}") != node:
            number += 1
        found[protocol] = name
    return found


async def test_coordinator_that_dies_costs_no_rebalance_and_no_record(
    cluster: KafkaCluster, kafka: KafkaHarness
) -> None:
    """Members of each protocol hold and commit; the groups move to the other broker, and back when that one dies."""
    topic = await kafka.create_stream(PARTITIONS)
    producer = await kafka.start_producer(acks="all", enable_idempotence=True)
    stream = Stream(producer, topic)
    groups = await groups_on(kafka, 1)
    teams = [Team(kafka, topic, group, protocol) for protocol, group in groups.items()]
    async with AsyncExitStack() as stack:
        for team in teams:
            await stack.enter_async_context(team.running())
        pouring = asyncio.create_task(stream.pour())
        for dies in cluster.brokers:
            await _all_read(teams, stream, pouring)
            before = [team.epochs for team in teams]
            # aiokafka's own clients never go back to the servers that they were given.
            await _until_known(producer.client, kafka.admin._client)
            await dies.kill()
            goal = {partition: end + 20 for partition, end in stream.ends.items()}
            await until(lambda: _reaches(stream, goal), "the other broker leads", pouring)  # noqa: B023 - awaited here
            await _all_read(teams, stream, pouring)
            assert [team.epochs for team in teams] == before
            await dies.start()
        stream.is_enough = True
        await pouring
        await _all_read(teams, stream)
        asked = Cluster({"bootstrap_servers": cluster.bootstrap_servers})
        stack.push_async_callback(asked.aclose)
        await asked.open(PATIENCE)
        for team in teams:
            await team.until_committed(asked, stream.ends)
            assert all(set(times.values()) == {1} for times in team.handled.values())


async def _until_known(*clients: AIOKafkaClient) -> None:
    """Both brokers, to clients that are not ours."""
    async with asyncio.timeout(PATIENCE):
        for client in clients:
            while len(client.cluster.brokers()) < 2:
                await client.force_metadata_update()


def _reaches(stream: Stream, goal: Mapping[int, int]) -> bool:
    return all(stream.ends[partition] >= end for partition, end in goal.items())


async def _all_read(teams: Sequence[Team], stream: Stream, *pouring: asyncio.Task[None]) -> None:
    """All that has come by now."""
    ends = dict(stream.ends)
    await until(lambda: all(team.has_read(ends) for team in teams), "all is read", *pouring)


async def test_log_that_an_unclean_leader_has_cut_off_is_an_error_with_both_offsets(
    cluster: KafkaCluster, kafka: KafkaHarness
) -> None:
    """KIP-320: what was delivered is not in the new leader's log, which goes on with other records."""
    topic = await kafka.create_stream(unclean_leader_election_enable="true")
    world = World(kafka)
    async with world.member(topic, session_timeout=60.0) as member:
        producer = await kafka.start_producer(acks="all")
        await kafka.append(topic, numbered(0, 3), producer=producer)
        assert values(await member.read(3)) == [0, 1, 2]
        leader = await _leader(kafka, topic)
        behind = cluster.broker(3 - leader)
        await behind.kill()
        await _until_alone(kafka, topic, leader)
        await kafka.append(topic, numbered(3, 9), producer=producer)
        assert values(await member.read(6)) == [3, 4, 5, 6, 7, 8]
        await cluster.broker(leader).kill()
        await behind.start()
        fault = (await member.read_fault()).fault
        assert isinstance(fault, PositionOutOfRangeError)
        assert "the position is 9, but the leader's log is as it was read only up to 3 " in str(
            fault
        )


async def _leader(kafka: KafkaHarness, topic: str) -> int:
    (found,) = await kafka.admin.describe_topics([topic])
    return int(found["partitions"][0]["leader"])


async def _until_alone(kafka: KafkaHarness, topic: str, leader: int) -> None:
    """The other copy is known to be behind."""
    async with asyncio.timeout(PATIENCE):
        while True:
            try:
                (found,) = await kafka.admin.describe_topics([topic])
            except (KafkaError, OSError):
                continue
            if list(found["partitions"][0]["isr"]) == [leader]:
                return
            await asyncio.sleep(0.1)
