"""Kafka's records in real Spark, by streams and by batch queries."""

from __future__ import annotations

import os
import signal
import time
import uuid
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from consumer_sdk import spark_bridge
from consumer_sdk.errors import ConfigurationError
from consumer_sdk.spark_bridge.pull.ack_rule import PROOFS
from tests.spark_bridge.pull.kafka_query import ON_SPARK, Kafka, Sink, Topic, complete, until
from tests.spark_bridge.pull.trap_query import until_acked

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [*ON_SPARK, pytest.mark.kafka]


async def send_full(topic: Topic, stamp: int) -> None:
    """Send a record with everything, a tombstone, and an empty one, to partition 0."""
    from aiokafka import AIOKafkaProducer

    headers = [("a", b"1"), ("b", None), ("a", b"")]
    async with AIOKafkaProducer(bootstrap_servers=topic.servers) as producer:
        send = producer.send_and_wait
        await send(topic.name, b"\x00\xff", b"k", 0, stamp, headers)
        await send(topic.name, None, b"t", 0, stamp + 1)
        await send(topic.name, b"", None, 0, stamp + 2)


def test_values_and_types_arrive_exactly(spark: SparkSession, topic: Topic) -> None:
    """Trap 12: column by column, with nulls, headers without a value, and empty bytes."""
    stamp = int(time.time() * 1000)
    complete(send_full(topic, stamp))
    frame = spark_bridge.read(spark, topic.url, includeHeaders=True)
    assert frame.schema.simpleString() == (
        "struct<key:binary,value:binary,topic:string,partition:int,offset:bigint,"
        "timestamp:timestamp,timestampType:int,headers:array<struct<key:string,value:binary>>>"
    )
    full, tombstone, empty = (
        row.asDict(recursive=True) for row in frame.orderBy("offset").collect()
    )
    moment = datetime.fromtimestamp(0, UTC) + timedelta(milliseconds=stamp)
    assert full["timestamp"].astimezone(UTC) == moment
    assert {**full, "timestamp": 0} == {
        "key": b"k",
        "value": b"\x00\xff",
        "topic": topic.name,
        "partition": 0,
        "offset": 0,
        "timestamp": 0,
        "timestampType": 0,
        "headers": [
            {"key": "a", "value": b"1"},
            {"key": "b", "value": None},
            {"key": "a", "value": b""},
        ],
    }
    assert (tombstone["key"], tombstone["value"], tombstone["headers"]) == (b"t", None, None)
    assert (empty["key"], empty["value"]) == (None, b"")


def test_a_batch_query_has_every_record_once(spark: SparkSession, topic: Topic) -> None:
    """And between two ends, those between them."""
    topic.send(5000)
    frame = spark_bridge.read(spark, topic.url, minPartitions=5)
    rows = frame.select("partition", "offset", "value").collect()
    assert sorted((row[0], row[1]) for row in rows) == topic.expected
    assert all(bytes(row[2]) == b"%d:%d" % (row[0], row[1]) for row in rows)
    assert frame.rdd.getNumPartitions() >= 5
    ends = {
        "startingOffsets": {topic.name: {0: 10, "1": -2}},
        "endingOffsets": f'{{"{topic.name}":{{"0":12,"1":3}}}}',
    }
    part = spark_bridge.read(spark, topic.url, **ends).select("partition", "offset").collect()
    assert sorted(map(tuple, part)) == [(0, 10), (0, 11), (1, 0), (1, 1), (1, 2)]
    ends["startingOffsets"] = {topic.name: {0: 13, 1: 0}}
    with pytest.raises(Exception, match=r"would begin at 13 .*after its end at 12"):
        spark_bridge.read(spark, topic.url, **ends).collect()


def test_options_of_sparks_own_source_work_unchanged(spark: SparkSession, topic: Topic) -> None:
    """A query ports by changing its format, and narrower columns are chosen by a schema."""
    topic.send(10)
    spark_bridge.register(spark)
    reader = spark.read.format("consumer_sdk").option("kafka.bootstrap.servers", topic.servers)
    reader = reader.option("subscribe", topic.name)
    assert reader.load().count() == 10
    servers = {"kafka.bootstrap.servers": topic.servers}
    by_part = spark_bridge.read(spark, subscribePattern=f"{topic.name[1:-1]}.", **servers)
    assert by_part.count() == 10
    narrow = reader.schema("offset bigint, partition int").load()
    assert narrow.columns == ["offset", "partition"]
    assert sorted((row[1], row[0]) for row in narrow.collect()) == topic.expected
    with pytest.raises(Exception, match=r"leave \.schema\(\) out"):
        reader.schema("offset string").load().collect()


def test_a_table_and_load_take_a_url(spark: SparkSession, topic: Topic) -> None:
    """In SQL too: a table keeps its options, though Spark hands its readers none of them."""
    topic.send(10)
    assert spark.read.format("consumer_sdk").load(topic.url).count() == 10
    with pytest.raises(Exception, match="give one URL"):
        spark.read.format("consumer_sdk").load([topic.url, topic.url])
    spark.sql(f"CREATE TABLE one USING consumer_sdk OPTIONS (url '{topic.url}', columns 'offset')")
    try:
        assert spark.table("one").columns == ["offset"]
        assert [row[0] for row in spark.sql("SELECT max(offset) FROM one").collect()] == [4]
        assert spark.readStream.table("one").columns == ["offset"]
    finally:
        spark.sql("DROP TABLE one")


@pytest.mark.campaign
def test_one_row_is_enough(spark: SparkSession, topic: Topic) -> None:
    """Trap 16: ``limit(1)`` closes the read early; the worker goes on to serve others."""
    topic.send(3000)
    frame = spark_bridge.read(spark, topic.url)
    for _ in range(3):
        assert len(frame.limit(1).collect()) == 1
    assert frame.count() == 3000


def test_a_run_until_now_has_each_record_once_and_leaves_no_lag(
    spark: SparkSession, topic: Topic, tmp_path: Path
) -> None:
    """Trap 3: AvailableNow; the group stands at the end, also of the next run."""
    topic.send(1000)
    options = {"startingOffsets": "earliest", "maxOffsetsPerTrigger": 300}
    frame = spark_bridge.read_stream(spark, topic.url, **options)
    sink = Sink(frame, tmp_path)
    sink.run()
    assert sink.rows == topic.expected
    assert len(sink.batches) >= 4
    until_acked(topic)
    topic.send(100)
    assert topic.lag() == 100
    sink.run()
    assert sink.rows == topic.expected
    until_acked(topic)


@pytest.mark.campaign
def test_an_idle_stream_leaves_no_lag_and_plans_no_batch(
    spark: SparkSession, topic: Topic, tmp_path: Path
) -> None:
    """Traps 2, 3 and 19: after the first batch and after each; stopping it takes no time."""
    topic.send(10)
    frame = spark_bridge.read_stream(spark, topic.url, startingOffsets="earliest")
    sink = Sink(frame, tmp_path)
    query = sink.start()
    until(lambda: sink.rows == topic.expected and topic.lag() == 0, query)
    for _ in range(PROOFS):
        topic.send(10)
        until(lambda: sink.rows == topic.expected and topic.lag() == 0, query)
    batches = len(sink.batches)
    assert not query.awaitTermination(2)
    assert len(sink.batches) == batches
    began = time.monotonic()
    query.stop()
    assert time.monotonic() - began < 25
    until_acked(topic)


@pytest.mark.campaign
def test_a_restarted_stream_goes_on_where_its_checkpoint_says(
    spark: SparkSession, topic: Topic, tmp_path: Path
) -> None:
    """Traps 7 and 8: a batch whose sink failed is read again, the very same."""
    topic.send(1000)
    options = {"startingOffsets": "earliest", "maxOffsetsPerTrigger": 300}
    frame = spark_bridge.read_stream(spark, topic.url, **options)
    sink = Sink(frame, tmp_path, fail_at=1)
    with pytest.raises(Exception, match="the sink failed"):
        sink.run()
    assert topic.lag() >= 700  # trap 4: what the sink did not confirm is not acked
    topic.send(200)
    sink.run()
    assert sink.rows == topic.expected
    until_acked(topic)


def test_a_crash_in_the_first_batch_skips_nothing(
    spark: SparkSession, topic: Topic, tmp_path: Path
) -> None:
    """Trap 1: "latest" is where the query first began, not where it is restarted."""
    topic.send(100)
    before = topic.expected
    frame = spark_bridge.read_stream(spark, topic.url)
    sink = Sink(frame, tmp_path, fail_at=0)
    with pytest.raises(Exception, match="the sink failed"):
        sink.run()
    topic.send(50)
    sink.run()
    assert sink.rows == sorted(set(topic.expected) - set(before))


@pytest.mark.campaign
def test_a_stream_joined_with_itself_sees_the_same_rows(
    spark: SparkSession, topic: Topic, tmp_path: Path
) -> None:
    """Trap 7: both branches read the same ranges."""
    topic.send(500)
    frame = spark_bridge.read_stream(spark, topic.url, startingOffsets="earliest")
    sink = Sink(frame.union(frame), tmp_path)
    sink.run()
    assert sink.rows == sorted(topic.expected * 2)


@pytest.mark.campaign
def test_two_queries_with_other_options_share_workers(
    spark: SparkSession, kafka_server: Kafka, topic: Topic, tmp_path: Path
) -> None:
    """Trap 14: each keeps its own topic, group and columns."""
    other = Topic(kafka_server, f"{topic.name}-other", partitions=1)
    topic.send(200)
    other.send(300)
    sinks = [
        Sink(spark_bridge.read_stream(spark, each.url, startingOffsets="earliest"), tmp_path / name)
        for each, name in ((topic, "one"), (other, "two"))
    ]
    queries = [sink.start() for sink in sinks]
    until(lambda: sinks[0].rows == topic.expected, queries[0])
    until(lambda: sinks[1].rows == other.expected, queries[1])
    until(lambda: topic.lag() == other.lag() == 0, queries[1])
    for query in queries:
        query.stop()


def kill_once(marker: Path) -> Callable[[Any], Any]:
    """Return a function for ``mapInArrow`` that kills the first worker in the middle of a task."""

    def dying(batches: Any) -> Any:
        for batch in batches:
            if not marker.exists():
                marker.touch()
                os.kill(os.getpid(), signal.SIGKILL)
            yield batch

    return dying


def test_a_worker_killed_in_a_task_loses_and_repeats_nothing(
    spark: SparkSession, topic: Topic, tmp_path: Path
) -> None:
    """Trap 6: Spark tries the task again, and it reads the same ranges."""
    topic.send(2000)
    frame = spark_bridge.read_stream(spark, topic.url, startingOffsets="earliest")
    dying = frame.select("partition", "offset").mapInArrow(
        kill_once(tmp_path / "killed"), "partition int, offset bigint"
    )
    sink = Sink(dying, tmp_path / "checkpoint")
    sink.run()
    assert (tmp_path / "killed").exists()
    assert sink.rows == topic.expected
    until_acked(topic)


@pytest.mark.campaign
async def test_a_group_with_members_takes_no_acks_and_the_query_goes_on(
    spark: SparkSession, topic: Topic, tmp_path: Path
) -> None:
    """Trap 5: an ack that is refused is a warning; with ``strictAcks`` it ends the query."""
    from asyncio import to_thread

    member = await topic.join()
    await to_thread(topic.send, 100)
    options = {"startingOffsets": "earliest"}
    sink = Sink(spark_bridge.read_stream(spark, topic.url, **options), tmp_path / "one")
    await to_thread(sink.run)
    assert sink.rows == topic.expected
    strict = spark_bridge.read_stream(spark, topic.url, strictAcks=True, **options)
    with pytest.raises(Exception, match="strictAcks is on"):
        await to_thread(Sink(strict, tmp_path / "two").run)
    await member.stop()


def test_wrong_options_are_refused_where_they_are_given(spark: SparkSession, topic: Topic) -> None:
    """Before Spark plans anything."""
    with pytest.raises(ConfigurationError, match="did you mean maxOffsetsPerTrigger"):
        spark_bridge.read_stream(spark, topic.url, maxOffsetPerTrigger=1)
    with pytest.raises(ConfigurationError, match="nowhere"):
        spark_bridge.read_stream(spark, "nowhere://x/y")


def test_a_query_of_sparks_own_source_goes_on_with_its_checkpoint(
    spark: SparkSession, topic: Topic, tmp_path: Path
) -> None:
    """Its offsets, written as that source does, with a micro-batch that it did not finish."""
    old, new = tmp_path / "old", tmp_path / "new"
    for name in ("offsets", "commits"):
        (old / name).mkdir(parents=True)
    (old / "metadata").write_text(f'{{"id":"{uuid.uuid4()}"}}')
    head = 'v1\n{"batchWatermarkMs":0,"batchTimestampMs":0,"conf":{}}\n'
    (old / "offsets" / "4").write_text(f'{head}{{"{topic.name}":{{"0":2,"1":3}}}}')
    (old / "offsets" / "5").write_text(f'{head}{{"{topic.name}":{{"0":4,"1":3}}}}')
    (old / "commits" / "4").write_text('v1\n{"nextBatchWatermarkMs":0}')
    topic.send(12)
    spark_bridge.import_checkpoint(old, new)
    sink = Sink(spark_bridge.read_stream(spark, topic.url), new)
    sink.run()
    rest = [(p, at) for p, at in topic.expected if at >= (4, 3)[p]]
    assert sink.batches == {5: [(0, 2), (0, 3)], 6: rest}
