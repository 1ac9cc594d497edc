"""Records from a real Kafka, checkpoints in a real ZooKeeper, and trouble with either end."""

from __future__ import annotations

import asyncio
import sys
import uuid
from asyncio.subprocess import Process
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from aiokafka import AIOKafkaProducer

from consumer_sdk.abc import Adapter
from consumer_sdk.adapters import KafkaAdapter
from consumer_sdk.records import Checkpoint, Partition
from consumer_sdk.testing.servers import KafkaEndpoint, ZooKeeperServer
from consumer_sdk.trackers import decode_checkpoint
from tests.adapters.kafka.harness import KafkaHarness
from tests.stores.zookeeper_load import Load, expire, until

pytestmark = [pytest.mark.kafka, pytest.mark.zookeeper]

ROOT = Path(__file__).parents[2]
Record = tuple[str, int]


class KafkaLoad(Load):
    """The records are in a topic of its own.

    Attributes:
        appended_at: every record's partition and position.
    """

    broker_kind = "kafka"

    def __init__(self, servers: str, hosts: str, topic: str, producer: AIOKafkaProducer) -> None:
        self.servers = servers
        self.topic = topic
        self.partitions = [Partition(topic, str(number)) for number in range(3)]
        self.appended_at: set[Record] = set()
        self._producer = producer
        super().__init__(hosts)

    async def append_some(self) -> None:
        """A few records, written when this returns."""
        sends = [
            await self._producer.send(self.topic, b"%d" % number, partition=number % 3)
            for number in range(30)
        ]
        for send in sends:
            written = await send
            self.appended_at.add((str(written.partition), written.offset))
        self.appended += len(sends)

    def adapter(self) -> Adapter:
        """A member of the topic's group."""
        return KafkaAdapter(
            self.topic, bootstrap_servers=self.servers, group=self.group, session_timeout=30.0
        )

    async def durable(self) -> dict[Partition, Checkpoint]:
        """The checkpoints as they are."""
        store = self.store()
        await store.open()
        try:
            texts = await store.peek(self.group, self.partitions)
        finally:
            await store.aclose()
        return {
            partition: decode_checkpoint(
                text, broker="kafka", partition=partition, identity=None, decode_position=int
            )
            for partition, text in texts.items()
            if text is not None
        }


@asynccontextmanager
async def loaded(kafka: KafkaEndpoint, zookeeper: ZooKeeperServer) -> AsyncIterator[KafkaLoad]:
    """A topic with a producer."""
    topic, servers = f"stores-{uuid.uuid4().hex}", kafka.bootstrap_servers
    await kafka.create_topic(topic, partitions=3)
    async with AIOKafkaProducer(bootstrap_servers=servers, linger_ms=5) as producer:
        yield KafkaLoad(servers, zookeeper.hosts, topic, producer)


@pytest.mark.campaign
async def test_consumer_of_kafka_outlives_a_killed_server_and_an_expired_session(
    kafka_server: KafkaEndpoint, own_zookeeper_server: ZooKeeperServer
) -> None:
    """Under load: nothing lost or redelivered, no checkpoint moves back, it resumes by itself."""
    async with loaded(kafka_server, own_zookeeper_server) as load:
        store = load.store()
        async with load.running(store):
            await own_zookeeper_server.kill()
            await asyncio.sleep(1.0)
            await own_zookeeper_server.start()
            await load.advances()
            await expire(store)
            await load.advances()
        assert max(load.seen.values()) == 1


class Child:
    """A consumer in a process of its own, one after the other.

    Args:
        out: the file in which all of them say what they have processed.
    """

    def __init__(self, load: KafkaLoad, out: Path) -> None:
        self._load = load
        self._out = out
        out.touch()

    @asynccontextmanager
    async def running(self) -> AsyncIterator[Process]:
        """Killed in the end, wherever it is."""
        load = self._load
        arguments = [load.servers, load.topic, load.group, load.hosts, str(self._out)]
        command = [sys.executable, "-m", "tests.stores.kafka_child", *arguments]
        process = await asyncio.create_subprocess_exec(*command, cwd=ROOT)
        try:
            yield process
            assert process.returncode is None, "the consumer ended by itself"
        finally:
            if process.returncode is None:
                process.kill()
            await process.wait()
            async with KafkaHarness(load.servers) as kafka:  # a session outlives a busy machine
                await kafka.end_sessions(load.group)

    def processed(self) -> list[Record]:
        """By all of them, in order."""
        lines = (line.split() for line in self._out.read_text().splitlines())
        return [(partition, int(position)) for partition, position in lines]

    async def goes_on(self, count: int = 500) -> None:
        """Waits until it has processed so many more."""
        wanted = len(self.processed()) + count
        await until(lambda: len(self.processed()) >= wanted)


def is_durable(durable: dict[Partition, Checkpoint], topic: str, record: Record) -> bool:
    """Whether a restart must not see it again."""
    checkpoint = durable.get(Partition(topic, record[0]))
    if checkpoint is None:
        return False
    is_below = checkpoint.watermark is not None and record[1] <= checkpoint.watermark
    return is_below or any(first <= record[1] <= last for first, last in checkpoint.ranges)


@pytest.mark.campaign
async def test_killed_consumer_of_kafka_repeats_only_what_was_not_flushed(
    kafka_server: KafkaEndpoint, own_zookeeper_server: ZooKeeperServer, tmp_path: Path
) -> None:
    """Killed under load, and once more while ZooKeeper is away: what was durable never returns."""
    async with loaded(kafka_server, own_zookeeper_server) as load:
        child, was_open = Child(load, tmp_path / "processed"), 0
        durable: dict[Partition, Checkpoint] = {}
        appending = asyncio.create_task(load.append())
        for is_away in (False, True, False):
            before = len(child.processed())
            async with child.running():
                await child.goes_on()
                if is_away:
                    await own_zookeeper_server.kill()
                    await child.goes_on()
            await own_zookeeper_server.start()
            again = set(child.processed()[before:])
            assert not [each for each in again if is_durable(durable, load.topic, each)]
            durable = await load.durable()
            was_open += sum(not is_durable(durable, load.topic, each) for each in again)
        load.is_appending = False
        await appending
        before = len(child.processed())
        async with child.running():
            await until(lambda: set(child.processed()) >= load.appended_at)
        last = child.processed()[before:]
        assert not [each for each in last if is_durable(durable, load.topic, each)]
        counts = Counter(child.processed())
        assert counts.keys() == load.appended_at
        assert 0 < counts.total() - len(counts) <= was_open
