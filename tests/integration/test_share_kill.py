"""``kill -9`` and SIGSTOP of members of a share group, brokers that start again, and many members: nothing is lost."""

from __future__ import annotations

import asyncio
import random
import signal
import sys
import uuid
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import NamedTuple

import pytest
from aiokafka import AIOKafkaProducer

from consumer_sdk import Consumer, Message, Ordering
from consumer_sdk.adapters import KafkaAdapter
from consumer_sdk.adapters.kafka.ranges.reader import KafkaRanges
from consumer_sdk.cli.groups.groups import opened_reader
from consumer_sdk.testing.servers import KafkaServer
from tests.adapters.kafka.harness import KafkaHarness

pytestmark = pytest.mark.kafka

PARTITIONS = 3
RECORDS = 12_000
PER_KILL = 600
"""More than a member has in hand: the next kill meets other records."""
LOCK, SHORTEST_LOCK = 2.0, 15.0
MOST_DELIVERIES = 10
"""What a group may have at most: a record that many kills meet is not archived."""

Record = tuple[str, int]


class Seen(NamedTuple):
    """A line of a process."""

    is_done: bool
    partition: str
    position: int
    attempt: int

    @property
    def record(self) -> Record:
        """Which one."""
        return self.partition, self.position


def seen_in(*files: Path) -> list[Seen]:
    """What processes have said, each file in its order."""
    lines = [
        line.split() for file in files if file.exists() for line in file.read_text().splitlines()
    ]
    return [Seen(sign == "-", partition, int(at), int(n)) for sign, partition, at, n in lines]


def done_in(*files: Path) -> set[Record]:
    """Records that were processed."""
    return {seen.record for seen in seen_in(*files) if seen.is_done}


async def produce(servers: str, topic: str, count: int) -> set[Record]:
    """So many records; where they are."""
    async with AIOKafkaProducer(bootstrap_servers=servers, linger_ms=10) as producer:
        sends = [await producer.send(topic, b"v%d" % n, key=b"k%d" % n) for n in range(count)]
        places = [await send for send in sends]
    return {(str(place.partition), place.offset) for place in places}


@asynccontextmanager
async def member(
    servers: str, topic: str, group: str, file: Path
) -> AsyncIterator[asyncio.subprocess.Process]:
    """A process of the group, which is gone afterwards."""
    url = f"kafka://{servers}/{topic}?share_group={group}&fetch_max_wait_ms=200"
    command = [sys.executable, "-m", "tests.integration.share_consumer", url, str(file)]
    process = await asyncio.create_subprocess_exec(*command)
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def start_offsets(servers: str, topic: str, group: str) -> dict[str, int]:
    """By partition: all before it is settled for ever; 0 where the group has not begun."""
    async with opened_reader(f"kafka://{servers}/{topic}?share_group={group}") as (reader, _):
        assert isinstance(reader, KafkaRanges)
        found = await reader.shared(group, await reader.partitions())
    return {partition.id: at.start or 0 for partition, at in found.items()}


async def until_done(count: int, process: asyncio.subprocess.Process, *files: Path) -> None:
    """Waits until so many records were processed."""
    while len(done_in(*files)) < count:
        assert process.returncode is None, "the consumer ended by itself"
        await asyncio.sleep(0.05)


async def begin(
    servers: str, lock: float | None = None, partitions: int = PARTITIONS
) -> tuple[str, str]:
    """A topic, and a group that reads it from its beginning."""
    topic = f"share-kill-{uuid.uuid4().hex[:8]}"
    async with KafkaHarness(servers) as kafka:
        await kafka.create_topic(topic, partitions)
        config = {
            "share.auto.offset.reset": "earliest",
            "share.delivery.count.limit": str(MOST_DELIVERIES),
        }
        if lock is not None:
            config["share.record.lock.duration.ms"] = str(round(lock * 1000))
        await kafka.configure_group(f"group-{topic}", config)
    return topic, f"group-{topic}"


@pytest.mark.parametrize("kills", [1, pytest.param(100, marks=pytest.mark.campaign)])
async def test_member_killed_many_times_loses_nothing_and_repeats_nothing_accepted(
    kafka_server: KafkaServer, tmp_path: Path, kills: int
) -> None:
    """Every record is processed; none that lies before the group's start offset comes again."""
    servers, file = kafka_server.bootstrap_servers, tmp_path / "seen"
    # A fetch of the dead that waits at the broker may acquire what their session gave back, up to the lock's end.
    topic, group = await begin(servers, SHORTEST_LOCK)
    records = max(PER_KILL * kills, RECORDS // 4)
    produced = await produce(servers, topic, records)
    chance = random.Random(20)
    for _ in range(kills):
        before = len(seen_in(file))
        settled = await start_offsets(servers, topic, group) if before else {}
        async with member(servers, topic, group, file) as process:
            goal = len(done_in(file)) + chance.randrange(1, 2 * records // kills)
            await until_done(min(goal, records), process, file)
        again = {seen.record for seen in seen_in(file)[before:]}
        if any(at[1] < settled.get(at[0], 0) for at in again):
            # Brokers up to 4.3.1 may set a new group's start offset back (docs/share-groups.md).
            now = await start_offsets(servers, topic, group)
            again = {at for at in again if now[at[0]] >= settled.get(at[0], 0)}
        assert not [at for at in again if at[1] < settled.get(at[0], 0)]
    async with member(servers, topic, group, file) as process:
        await until_done(records, process, file)
    assert done_in(file) == produced


@pytest.mark.campaign
async def test_member_stopped_thirty_times_gives_way_to_another(tmp_path: Path) -> None:
    """Its locks end meanwhile; what it says of them afterwards changes nothing, and does not end it."""
    properties = {"group.share.min.record.lock.duration.ms": 1000}
    async with KafkaServer(properties=properties) as server:
        servers = server.bootstrap_servers
        topic, group = await begin(servers, LOCK)
        produced = await produce(servers, topic, RECORDS)
        files = tmp_path / "first", tmp_path / "second"
        async with (
            member(servers, topic, group, files[0]) as first,
            member(servers, topic, group, files[1]) as second,
        ):
            for _ in range(30):
                goal = min(len(done_in(*files)) + 300, len(produced))
                await until_done(goal, first, *files)
                first.send_signal(signal.SIGSTOP)
                stuck = {seen.record for seen in seen_in(files[0])} - done_in(*files)
                while stuck - done_in(*files):  # the locks of the one that is stopped end
                    assert second.returncode is None
                    await asyncio.sleep(0.05)
                first.send_signal(signal.SIGCONT)
                more = await produce(servers, topic, 600)
                produced |= more
            await until_done(len(produced), first, *files)
        assert done_in(*files) == produced


@pytest.mark.campaign
async def test_broker_started_again_three_times_under_load_loses_nothing(
    own_kafka_server: KafkaServer,
) -> None:
    """Locks and sessions are gone with it; the consumer goes on by itself."""
    servers = own_kafka_server.bootstrap_servers
    topic, group = await begin(servers)
    seen: set[Record] = set()

    async def handle(message: Message) -> None:
        seen.add((message.partition.id, int(message.position)))

    consumer = Consumer(KafkaAdapter(topic, bootstrap_servers=servers, share_group=group))
    running = asyncio.create_task(
        consumer.run(handle, concurrency=16, ordering=Ordering.NONE, handle_signals=False)
    )
    produced: set[Record] = set()
    for _ in range(3):
        produced |= await produce(servers, topic, 1000)
        while len(seen) < len(produced) - 500:
            assert not running.done(), running.result()
            await asyncio.sleep(0.05)
        await own_kafka_server.kill()
        await own_kafka_server.restart()
    while produced - seen:
        assert not running.done(), running.result()
        await asyncio.sleep(0.05)
    consumer.stop()
    await running


@pytest.mark.campaign
async def test_sixty_four_members_on_one_partition_share_it(kafka_server: KafkaServer) -> None:
    """Each record goes to one of them, once."""
    servers = kafka_server.bootstrap_servers
    topic, group = await begin(servers, partitions=1)
    produced = await produce(servers, topic, 6400)
    seen: Counter[int] = Counter()
    by_member: Counter[int] = Counter()
    consumers = [
        Consumer(
            KafkaAdapter(topic, bootstrap_servers=servers, share_group=group), max_in_flight=20
        )
        for _ in range(64)
    ]

    async def run(number: int) -> None:
        async def handle(message: Message) -> None:
            seen[int(message.position)] += 1
            by_member[number] += 1
            await asyncio.sleep(0.01)

        await consumers[number].run(
            handle, concurrency=4, ordering=Ordering.NONE, handle_signals=False
        )

    running = [asyncio.create_task(run(number)) for number in range(64)]
    while len(seen) < len(produced):
        assert not [task.result() for task in running if task.done()]
        await asyncio.sleep(0.1)
    for consumer in consumers:
        consumer.stop()
    await asyncio.gather(*running)
    assert max(seen.values()) == 1
    assert len(by_member) > 1
