"""A real consumer of each broker feeds real Spark, and is killed while it does."""

from __future__ import annotations

import asyncio
import json
import random
import sys
import uuid
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from aiokafka import AIOKafkaProducer

from consumer_sdk import Consumer, Message, RetryPolicy, spark_bridge
from consumer_sdk.spark_bridge import SparkFeed
from consumer_sdk.spark_bridge.feed.files import PosixFiles
from consumer_sdk.spark_bridge.feed.reader_marks import ReaderMark
from consumer_sdk.testing.servers import KafkaServer, KinesisServer, PulsarServer
from tests.adapters.kinesis.server_harness import connection
from tests.integration.pulsar_field import GROUP, Field, numbers, until, until_true
from tests.spark_bridge.conftest import spark  # noqa: F401 - a fixture
from tests.spark_bridge.feeding import manifests

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [
    pytest.mark.spark,
    pytest.mark.filterwarnings("ignore:PySpark does not yet fully support pandas:FutureWarning"),
]

COUNT, KILLS = 600, 3
Row = dict[str, Any]


class Feeder:
    """A process of ``tests.integration.feed_consumer``, killed and started again."""

    def __init__(self, broker: str, folder: Path, *, store: bool, **options: Any) -> None:
        self.directory = folder / "feed"
        place = str(folder / "checkpoints.db") if store else ""
        self._command = [sys.executable, "-m", "tests.integration.feed_consumer", broker]
        self._command += [str(self.directory), place, json.dumps(options)]

    @asynccontextmanager
    async def running(self) -> AsyncIterator[asyncio.subprocess.Process]:
        """Runs it, and kills it (SIGKILL) in the end."""
        process = await asyncio.create_subprocess_exec(*self._command)
        try:
            yield process
        finally:
            process.kill()
            await process.wait()

    def count(self) -> int:
        """Rows that are committed."""
        return sum(found.rows for found in manifests(self.directory))

    async def until(self, count: int) -> None:
        """Runs it until there are so many rows, and kills it."""
        async with self.running() as process, asyncio.timeout(300):
            while self.count() < count:
                assert process.returncode is None, "the consumer ended by itself"
                await asyncio.sleep(0.02)

    async def be_killed(self) -> None:
        """Killed some times in the middle, then until everything is there."""
        chance = random.Random(KILLS)
        for kill in range(KILLS):
            await self.until(COUNT * kill // KILLS + chance.randrange(1, COUNT // KILLS))
        await self.until(COUNT)
        # What may come again after the last kill does, and is recognised.
        async with self.running():
            await asyncio.sleep(3)

    def check(self, spark: SparkSession, is_right: Callable[[Row], bool]) -> list[Row]:  # noqa: F811 - the argument
        """Spark reads it: each number once, and each row as its broker has it."""
        frame = spark_bridge.read(spark, f"feed://{self.directory}")
        rows = [row.asDict(recursive=True) for row in frame.collect()]
        counts = Counter(bytes(row["value"]) for row in rows)
        assert counts == Counter(numbers(COUNT))
        assert [row for row in rows if not is_right(row)] == []
        return rows


@pytest.mark.campaign
@pytest.mark.kafka
async def test_kafka_fed_through_kills_is_in_spark_once(
    kafka_server: KafkaServer,
    spark: SparkSession,  # noqa: F811 - the fixture
    tmp_path: Path,
) -> None:
    """Trap 23: `kill -9` of the consumer: 0 lost, 0 duplicate rows, everything as it was sent."""
    topic = f"feed-{uuid.uuid4().hex}"
    await kafka_server.create_topic(topic, partitions=3)
    servers = kafka_server.bootstrap_servers
    async with AIOKafkaProducer(bootstrap_servers=servers) as producer:
        for n, value in enumerate(numbers(COUNT)):
            await producer.send(
                topic, value, key=b"k%d" % n, timestamp_ms=1000 * n + 1, headers=[("h", value)]
            )
    feeder = Feeder(
        "kafka", tmp_path, store=False,
        stream=topic, bootstrap_servers=servers, group=topic, session_timeout=1.5,
    )  # fmt: skip
    await feeder.be_killed()

    def is_right(row: Row) -> bool:
        number = int(row["value"])
        return (
            bytes(row["key"]) == b"k%d" % number
            and row["timestamp"].timestamp() == number + 0.001
            and row["headers"] == [{"key": "h", "value": row["value"]}]
            and (row["topic"], str(row["partition"])) == (topic, row["partitionId"])
            and str(row["offset"]) == row["position"]
        )

    rows = await asyncio.to_thread(feeder.check, spark, is_right)
    assert len({(row["partition"], row["offset"]) for row in rows}) == COUNT


@pytest.mark.campaign
@pytest.mark.kinesis
async def test_kinesis_fed_through_kills_is_in_spark_once(
    kinesis_server: KinesisServer,
    spark: SparkSession,  # noqa: F811 - the fixture
    tmp_path: Path,
) -> None:
    """Trap 23: the same with positions that are text, and leases in a store."""
    stream = f"feed-{uuid.uuid4().hex}"
    await kinesis_server.create_stream(stream, 2)
    await kinesis_server.put(stream, [(f"k{n}", b"%d" % n) for n in range(COUNT)])
    feeder = Feeder(
        "kinesis", tmp_path, store=True,
        stream=stream, group="g", poll_interval=0.2, lease_duration=2.5,
        **connection(kinesis_server),
    )  # fmt: skip
    await feeder.be_killed()

    def is_right(row: Row) -> bool:
        return (
            bytes(row["key"]) == b"k%d" % int(row["value"])
            and row["timestamp"] is not None
            and row["offset"] is None
            and row["position"].split(":")[0].isdecimal()
            and row["partitionId"].startswith("shardId-")
        )

    await asyncio.to_thread(feeder.check, spark, is_right)


@pytest.mark.pulsar
@pytest.mark.campaign
@pytest.mark.parametrize("kind", ["exclusive", "shared"])
async def test_pulsar_fed_through_kills_is_in_spark_once(
    pulsar_server: PulsarServer,
    spark: SparkSession,  # noqa: F811 - the fixture
    tmp_path: Path,
    kind: str,
) -> None:
    """Trap 24: what the broker delivers again, after a kill or a failure, is one row."""
    field = await Field(pulsar_server, "feed", partitions=2).create()
    await field.load(COUNT)
    feeder = Feeder(
        "pulsar", tmp_path, store=False,
        stream=field.topic, service_url=pulsar_server.service_url,
        admin_url=pulsar_server.admin_url, subscription=GROUP, type=kind,
    )  # fmt: skip
    await feeder.be_killed()

    def is_right(row: Row) -> bool:
        return (
            bytes(row["key"]) == b"k%d" % (int(row["value"]) % 17)
            and row["timestamp"] is not None
            and row["offset"] is None
            and bool(row["position"])
        )

    rows = await asyncio.to_thread(feeder.check, spark, is_right)
    assert len({(row["topic"], row["partitionId"], row["position"]) for row in rows}) == COUNT


@pytest.mark.campaign
@pytest.mark.pulsar
async def test_records_that_wait_for_spark_longer_than_their_ack_timeout_are_one_row(
    pulsar_server: PulsarServer,
    spark: SparkSession,  # noqa: F811 - the fixture
    tmp_path: Path,
) -> None:
    """Trap 24: acked late, and so delivered again while the first delivery still waits."""
    field = await Field(pulsar_server, "late").create()
    await field.produce(numbers(10))
    adapter = field.adapter("shared")
    reader = ReaderMark(PosixFiles(tmp_path / "feed"), "query")
    async with (
        SparkFeed(tmp_path / "feed", max_wait=0.0, max_backlog_rows=10) as feed,
        Consumer(adapter, ack_timeout=0.2, retry=RetryPolicy(max_attempts=None)) as consumer,
    ):
        again: list[Message] = []

        async def put(message: Message) -> None:
            await feed.put(message)
            message.ack()

        async def pull() -> None:
            async with asyncio.TaskGroup() as puts:
                async for message in consumer:
                    again.extend([message] if message.attempt > 1 else [])
                    puts.create_task(put(message))

        async def is_acked() -> bool:
            reader.move(feed.stats().segments)
            return await pulsar_server.backlog(field.topic, GROUP) == 0

        pulling = asyncio.create_task(pull())
        await until(lambda: feed.stats().written == 10)
        await field.produce(numbers(20, first=10))
        await until(lambda: len(again) >= 20)
        await until_true(is_acked)
        pulling.cancel()
        await asyncio.gather(pulling, return_exceptions=True)
    rows = await asyncio.to_thread(spark_bridge.read(spark, f"feed://{tmp_path}/feed").collect)
    assert Counter(bytes(row["value"]) for row in rows) == Counter(numbers(30))
