"""``kill -9`` of the consumer, and of the broker, under load: nothing is lost."""

from __future__ import annotations

import asyncio
import random
import sys
import uuid
from collections import Counter
from pathlib import Path

import pytest
from aiokafka import AIOKafkaProducer

from consumer_sdk import Consumer, Message, Partition
from consumer_sdk.adapters import KafkaAdapter
from consumer_sdk.records import Checkpoint
from consumer_sdk.stores import LocalStore
from consumer_sdk.testing.servers import KafkaServer
from consumer_sdk.trackers import decode_checkpoint
from tests.adapters.kafka.harness import KafkaHarness

pytestmark = pytest.mark.kafka

PARTITIONS = 3
RECORDS = 12_000
KILLS = 5

Record = tuple[str, int]


async def _produce(servers: str, topic: str, count: int) -> set[Record]:
    produced: set[Record] = set()
    async with AIOKafkaProducer(bootstrap_servers=servers, linger_ms=10) as producer:
        sends = [
            await producer.send(topic, b"v%d" % n, key=b"k%d" % (n % 97)) for n in range(count)
        ]
        for send in sends:
            metadata = await send
            produced.add((str(metadata.partition), metadata.offset))
    return produced


def _processed(path: Path) -> list[Record]:
    if not path.exists():
        return []
    lines = path.read_text().splitlines()
    return [(partition, int(position)) for partition, position in map(str.split, lines)]


async def _durable(store_path: Path, topic: str, group: str) -> dict[str, Checkpoint]:
    """What the store says is settled, by partition."""
    store = LocalStore(store_path)
    await store.open()
    try:
        partitions = [Partition(topic, str(n)) for n in range(PARTITIONS)]
        texts = await store.peek(group, partitions)
    finally:
        await store.aclose()
    return {
        p.id: decode_checkpoint(
            text, broker="kafka", partition=p, identity=None, decode_position=int
        )
        for p, text in texts.items()
        if text is not None
    }


def _is_durable(durable: dict[str, Checkpoint], record: Record) -> bool:
    partition, position = record
    checkpoint = durable.get(partition)
    if checkpoint is None:
        return False
    is_below = checkpoint.watermark is not None and position <= checkpoint.watermark
    return is_below or any(first <= position <= last for first, last in checkpoint.ranges)


async def _until(path: Path, count: int, process: asyncio.subprocess.Process) -> None:
    """Waits until ``count`` records were processed."""
    while len(_processed(path)) < count:
        assert process.returncode is None, "the consumer ended by itself"
        await asyncio.sleep(0.02)


@pytest.mark.parametrize("options", ["session_timeout=30", "protocol=consumer"])
async def test_consumer_killed_many_times_loses_nothing_and_repeats_only_what_was_open(
    kafka_server: KafkaServer, tmp_path: Path, options: str
) -> None:
    """T4: every record is processed, and one whose checkpoint was durable never again."""
    topic = f"integration-kill-{uuid.uuid4().hex[:8]}"
    group = f"killed-{topic}"
    await kafka_server.create_topic(topic, partitions=PARTITIONS)
    produced = await _produce(kafka_server.bootstrap_servers, topic, RECORDS)
    out, store = tmp_path / "processed", tmp_path / "checkpoints.db"
    command = [sys.executable, "-m", "tests.integration.consumer_process"]
    url = f"kafka://{kafka_server.bootstrap_servers}/{topic}?group={group}&{options}"
    command += [url, str(store), str(out)]
    chance = random.Random(20)
    was_open = 0
    for run in range(KILLS + 1):
        durable = await _durable(store, topic, group) if run else {}
        before = _processed(out)
        process = await asyncio.create_subprocess_exec(*command)
        try:
            if run < KILLS:
                goal = len(before) + chance.randrange(1, 2 * RECORDS // KILLS)
                # A quick process goes past its goal before it is killed; more than all never comes.
                await _until(out, min(goal, RECORDS), process)
            else:
                while produced - set(_processed(out)):
                    assert process.returncode is None, "the consumer ended by itself"
                    await asyncio.sleep(0.05)
        finally:
            process.kill()
            await process.wait()
            async with KafkaHarness(kafka_server.bootstrap_servers) as kafka:
                await kafka.end_sessions(group)  # so long that no busy machine ends one
        again = _processed(out)[len(before) :]
        assert not [record for record in again if _is_durable(durable, record)]
        durable = await _durable(store, topic, group)
        was_open += sum(not _is_durable(durable, record) for record in set(again))
    counts = Counter(_processed(out))
    assert counts.keys() == produced
    assert sum(counts.values()) - len(counts) <= was_open


@pytest.mark.campaign
async def test_broker_killed_five_times_under_load_loses_nothing(
    own_kafka_server: KafkaServer,
) -> None:
    """The consumer goes on by itself when the broker is back, and nothing is missing."""
    topic = "integration-broker"
    await own_kafka_server.create_topic(topic, partitions=PARTITIONS)
    servers = own_kafka_server.bootstrap_servers
    acked: set[bytes] = set()
    seen: set[bytes] = set()
    done = asyncio.Event()

    async def produce() -> None:
        async with AIOKafkaProducer(
            bootstrap_servers=servers, enable_idempotence=True, request_timeout_ms=120_000
        ) as producer:
            n = 0
            while not done.is_set():
                values = [b"v%d" % (n + i) for i in range(50)]
                sends = [await producer.send(topic, value, key=value[-1:]) for value in values]
                await asyncio.gather(*sends)
                acked.update(values)
                n += 50
                await asyncio.sleep(0.01)

    async def handle(message: Message) -> None:
        seen.add(message.value or b"")

    consumer = Consumer(KafkaAdapter(topic, bootstrap_servers=servers, group="restarts"))
    running = asyncio.create_task(consumer.run(handle, concurrency=16, handle_signals=False))
    producing = asyncio.create_task(produce())
    for _ in range(5):
        target = len(seen) + 500
        await _reach(seen, target, running)
        await own_kafka_server.kill()
        await own_kafka_server.restart()
    await _reach(seen, len(seen) + 500, running)
    done.set()
    await producing
    while acked - seen:
        assert not running.done(), running.result()
        await asyncio.sleep(0.05)
    consumer.stop()
    await running
    assert acked <= seen


async def _reach(seen: set[bytes], count: int, running: asyncio.Task[None]) -> None:
    while len(seen) < count:
        assert not running.done(), running.result()
        await asyncio.sleep(0.05)
