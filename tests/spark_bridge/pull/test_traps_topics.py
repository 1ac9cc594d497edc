"""What happens to a topic while real Spark reads it: gaps, losses, growth, giants."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from consumer_sdk import spark_bridge
from tests.spark_bridge.pull.kafka_query import ON_SPARK, Kafka, Sink, Topic, complete, until
from tests.spark_bridge.pull.trap_query import delete_before, frame_of, until_acked, with_admin

if TYPE_CHECKING:
    from aiokafka import AIOKafkaProducer
    from aiokafka.admin import AIOKafkaAdminClient
    from pyspark.sql import SparkSession

pytestmark = [*ON_SPARK, pytest.mark.kafka]

LARGE = 50 * 2**20
"""Bytes of a giant record; fifty times what a topic allows by default."""


def test_records_that_retention_took_fail_the_query_or_are_left_out(
    spark: SparkSession, topic: Topic, tmp_path: Path
) -> None:
    """Trap 8: a checkpoint older than what the broker keeps; ``failOnDataLoss`` decides."""
    topic.send(100)
    sink = Sink(frame_of(spark, topic), tmp_path)
    sink.run()
    topic.send(100)
    delete_before(topic, {0: 70})
    with pytest.raises(Exception, match="failOnDataLoss"):
        sink.run()
    assert len(sink.rows) == 100
    sink.frame = frame_of(spark, topic, failOnDataLoss="false")
    sink.run()
    lost = {(0, offset) for offset in range(50, 70)}
    assert sink.rows == sorted(set(topic.expected) - lost)
    until_acked(topic)


@pytest.mark.campaign
def test_transactions_end_a_run_where_they_end(
    spark: SparkSession, topic: Topic, tmp_path: Path
) -> None:
    """Trap 10: aborted records, markers at the end, and a transaction that is still open."""

    async def work() -> None:
        producer = await _transactional(topic, "one")
        for ending in (producer.commit_transaction, producer.abort_transaction):
            await producer.begin_transaction()
            await _send_ten(producer, topic)
            await ending()
        await producer.begin_transaction()
        await _send_ten(producer, topic)
        try:
            await running()
        finally:
            await producer.commit_transaction()
            await producer.stop()

    async def running() -> None:
        import asyncio

        await asyncio.to_thread(sink.run)
        assert sink.rows == [(0, offset) for offset in range(10)]

    level = {"kafka.isolation.level": "read_committed"}
    sink = Sink(frame_of(spark, topic, **level), tmp_path)
    complete(work())
    sink.run()
    # 10 and 21 are markers, 11 to 20 were aborted, and 32 is the last marker.
    assert sink.rows == [(0, offset) for offset in (*range(10), *range(22, 32))]
    until_acked(topic)


async def _transactional(topic: Topic, name: str) -> AIOKafkaProducer:
    from aiokafka import AIOKafkaProducer

    producer = AIOKafkaProducer(
        bootstrap_servers=topic.servers, transactional_id=f"{topic.name}-{name}"
    )
    await producer.start()
    return producer


async def _send_ten(producer: AIOKafkaProducer, topic: Topic) -> None:
    for _ in range(10):
        await producer.send_and_wait(topic.name, b"x", partition=0)


@pytest.mark.campaign
def test_a_partition_that_is_added_is_read_from_its_first_record(
    spark: SparkSession, topic: Topic, tmp_path: Path
) -> None:
    """Trap 11: while the stream runs, although it began at the latest records."""
    topic.send(10)
    before = set(topic.expected)
    frame = frame_of(spark, topic, startingOffsets="latest")
    sink = Sink(frame, tmp_path)
    query = sink.start()
    until(lambda: 0 in sink.batches, query)
    _add_partition(topic)
    topic.send(30)
    wanted = sorted(set(topic.expected) - before)
    until(lambda: sink.rows == wanted, query)
    query.stop()


def _add_partition(topic: Topic) -> None:
    from aiokafka.admin import NewPartitions

    topic.partitions += 1
    topic.counts.append(0)

    async def add(admin: AIOKafkaAdminClient) -> None:
        await admin.create_partitions({topic.name: NewPartitions(topic.partitions)})
        while len((await admin.describe_topics([topic.name]))[0]["partitions"]) < topic.partitions:
            pass  # the broker hears of it a little later

    with_admin(topic, add)


async def _delete(admin: AIOKafkaAdminClient, topic: str) -> None:
    """Returns when the broker has heard of it: what is written before goes into the old one."""
    ((_, code),) = (await admin.delete_topics([topic])).topic_error_codes
    assert code == 0, code
    while topic in await admin.list_topics():
        pass


def test_a_topic_that_was_made_again_is_a_loss(
    spark: SparkSession, kafka_server: Kafka, topic: Topic, tmp_path: Path
) -> None:
    """Trap 11: its offsets are smaller: an error, or what is sent from then on."""
    topic.send(100)
    sink = Sink(frame_of(spark, topic), tmp_path)
    sink.run()
    with_admin(topic, lambda admin: _delete(admin, topic.name))
    again = Topic(kafka_server, topic.name)
    again.send(20)
    with pytest.raises(Exception, match=r"as if it was made again.*failOnDataLoss"):
        sink.run()
    sink.frame = frame_of(spark, topic, failOnDataLoss="false")
    sink.batches.clear()
    sink.run()
    assert sink.rows == []
    again.send(20)
    sink.run()
    assert sink.rows == again.expected[10:20] + again.expected[30:]


@pytest.mark.campaign
def test_a_record_of_fifty_megabytes_arrives_whole(
    spark: SparkSession, kafka_server: Kafka, topic: Topic
) -> None:
    """Trap 13: larger than every limit of ours; its neighbours arrive as well."""
    giant = b"0123456789abcdef" * (LARGE // 16)
    name = f"{topic.name}-large"
    complete(_send_giant(kafka_server, name, giant))
    frame = spark_bridge.read(spark, f"kafka://{topic.servers}/{name}")
    found = frame.selectExpr("offset", "octet_length(value)", "sha2(value, 256)").collect()
    digests = [hashlib.sha256(each).hexdigest() for each in (b"before", giant, b"after")]
    assert sorted(map(tuple, found)) == [
        (0, 6, digests[0]),
        (1, LARGE, digests[1]),
        (2, 5, digests[2]),
    ]


async def _send_giant(server: Kafka, topic: str, giant: bytes) -> None:
    from aiokafka import AIOKafkaProducer

    await server.create_topic(topic, 1, max_message_bytes=2 * LARGE)
    async with AIOKafkaProducer(
        bootstrap_servers=server.bootstrap_servers, max_request_size=2 * LARGE
    ) as producer:
        for value in (b"before", giant, b"after"):
            await producer.send_and_wait(topic, value)
