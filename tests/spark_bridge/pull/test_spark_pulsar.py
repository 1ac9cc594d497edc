"""Pulsar's records in real Spark, by streams and by batch queries."""

from __future__ import annotations

import re
import time
import uuid
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from consumer_sdk import spark_bridge
from tests.spark_bridge.pull.kafka_query import ON_SPARK, Sink
from tests.spark_bridge.pull.pulsar_query import WHERE, PulsarTopic, until

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from consumer_sdk.testing.servers import PulsarServer

pytestmark = [*ON_SPARK, pytest.mark.pulsar]

BOTH_ACKS = pytest.mark.parametrize(
    "admin", [pytest.param(False, marks=pytest.mark.campaign), True]
)
"""Acks by the client, and by the admin API."""


@pytest.fixture
def topic(pulsar_server: PulsarServer, request: pytest.FixtureRequest) -> PulsarTopic:
    """Give a topic with two partitions, named after the test."""
    name = re.sub(r"\W", "-", request.node.name)[-50:]
    return PulsarTopic(pulsar_server, f"{name}-{uuid.uuid4().hex[:8]}")


def client_of(topic: PulsarTopic) -> Any:
    """Pulsar's own client."""
    import pulsar

    logger = pulsar.ConsoleLogger(pulsar.LoggerLevel.Error)
    return pulsar.Client(topic.server.service_url, logger=logger)


def send_full(topic: PulsarTopic) -> list[str]:
    """Send a record with everything, and an empty one, to partition 1; return where they are."""
    with closing(client_of(topic)) as client:
        producer = client.create_producer(f"{topic.stream}-partition-1", batching_enabled=False)
        full = producer.send(b"\x00\xff", {"a": "1", "b": ""}, partition_key="k")
        empty = producer.send(b"")
    return [f"{each.ledger_id()}:{each.entry_id()}" for each in (full, empty)]


def test_values_and_types_arrive_exactly(spark: SparkSession, topic: PulsarTopic) -> None:
    """Trap 12: column by column, with nulls, properties and empty bytes."""
    began = datetime.now(UTC)
    places = send_full(topic)
    frame = spark_bridge.read(spark, topic.url(), includeHeaders=True)
    assert frame.schema.simpleString() == (
        "struct<key:binary,value:binary,topic:string,partition:int,offset:bigint,"
        "timestamp:timestamp,timestampType:int,headers:array<struct<key:string,value:binary>>,"
        "partitionId:string,position:string>"
    )
    rows = [row.asDict(recursive=True) for row in frame.orderBy("position").collect()]
    full, empty = rows
    for row, place in zip(rows, places, strict=True):
        assert row.pop("position").startswith(f"{place}:")
        minute = timedelta(minutes=1)
        assert began - minute < row.pop("timestamp").astimezone(UTC) < began + minute
    same = {"topic": topic.stream, "partition": 1, "partitionId": "1"}
    unknown = {"offset": None, "timestampType": None}
    headers = [{"key": "a", "value": b"1"}, {"key": "b", "value": b""}]
    assert full == {"key": b"k", "value": b"\x00\xff", "headers": headers, **same, **unknown}
    assert empty == {"key": None, "value": b"", "headers": None, **same, **unknown}


@pytest.mark.parametrize("admin", [False, True])
def test_a_batch_query_has_every_record_once(
    spark: SparkSession, topic: PulsarTopic, *, admin: bool
) -> None:
    """With and without the REST API; the partition column is where a record was sent to."""
    topic.send(3000)
    options = {"minPartitions": 5} if admin else {}
    frame = spark_bridge.read(spark, topic.url(admin=admin), **options)
    rows = frame.selectExpr("partition as asked", *WHERE).collect()
    assert sorted((row[1], row[2]) for row in rows) == topic.expected
    assert all(row[0] == row[1] for row in rows)
    assert topic.backlog() > 0  # a batch query acks nothing


def test_a_batch_query_between_two_positions_has_what_lies_between(
    spark: SparkSession, topic: PulsarTopic
) -> None:
    """The position column is what startingOffsets and endingOffsets take; ends are left out."""
    topic.send(50)
    whole = spark_bridge.read(spark, topic.url()).select("position", *map(_column, WHERE))
    places = {(row[1], row[2]): row[0] for row in whole.collect()}
    ends = {
        "startingOffsets": _each(topic, places[0, 10], -2),
        "endingOffsets": _each(topic, places[0, 30], places[1, 1]),
    }
    part = spark_bridge.read(spark, topic.url(), **ends).selectExpr(*WHERE)
    found = sorted(tuple(row) for row in part.collect())
    assert found == [*((0, number) for number in range(10, 30)), (1, 0)]


def _column(text: str) -> Any:
    from pyspark.sql import functions

    return functions.expr(text)


def _each(topic: PulsarTopic, *positions: str | int) -> str:
    import json

    return json.dumps({topic.stream: {str(p): at for p, at in enumerate(positions)}})


@BOTH_ACKS
def test_a_run_until_now_has_each_record_once_and_leaves_no_backlog(
    spark: SparkSession, topic: PulsarTopic, tmp_path: Path, *, admin: bool
) -> None:
    """Trap 3: AvailableNow; the subscription has nothing left, also of the next run."""
    topic.send(500)
    sink = Sink(topic.stream_of(spark, admin=admin), tmp_path)
    sink.run()
    assert sink.rows == topic.expected
    topic.until_acked()
    topic.send(100)
    assert topic.backlog() > 0
    sink.run()
    assert sink.rows == topic.expected
    topic.until_acked()


@pytest.mark.campaign
def test_limits_cut_a_run_into_batches(
    spark: SparkSession, topic: PulsarTopic, tmp_path: Path
) -> None:
    """With the REST API, which knows how many entries there are."""
    topic.send(500, batch=False)
    sink = Sink(topic.stream_of(spark, maxOffsetsPerTrigger=300), tmp_path)
    sink.run()
    assert sink.rows == topic.expected
    assert len(sink.batches) >= 4
    assert max(map(len, sink.batches.values())) <= 300
    topic.until_acked()


def test_limits_without_the_rest_api_name_the_option_that_is_missing(
    spark: SparkSession, topic: PulsarTopic, tmp_path: Path
) -> None:
    """Nobody else knows how many records there are."""
    topic.send(5)
    sink = Sink(topic.stream_of(spark, admin=False, maxOffsetsPerTrigger=3), tmp_path)
    with pytest.raises(Exception, match="give admin_url="):
        sink.run()


@pytest.mark.campaign
@BOTH_ACKS
def test_a_restarted_stream_goes_on_where_its_checkpoint_says(
    spark: SparkSession, topic: PulsarTopic, tmp_path: Path, *, admin: bool
) -> None:
    """Traps 7 and 8: a batch whose sink failed is read again, the very same, by both actions."""
    topic.send(100)
    sink = Sink(topic.stream_of(spark, admin=admin), tmp_path)
    sink.run()
    topic.send(300)
    sink.fail_at = 1
    with pytest.raises(Exception, match="the sink failed"):
        sink.run()
    assert topic.backlog() > 0  # trap 4: what the sink did not confirm is not acked
    topic.send(50)
    sink.run()
    assert sink.rows == topic.expected
    topic.until_acked()


@pytest.mark.campaign
def test_nothing_is_deleted_before_the_first_batch_was_confirmed(
    spark: SparkSession, topic: PulsarTopic, tmp_path: Path
) -> None:
    """The query's subscription is there before it reads, and nobody else's keeps the data."""
    topic.send(100)
    sink = Sink(topic.stream_of(spark), tmp_path, fail_at=0)
    with pytest.raises(Exception, match="the sink failed"):
        sink.run()
    topic.unload()  # the ledgers so far are closed: what no subscription keeps can go
    topic.send(10)
    topic.trim()
    topic.unload()
    sink.run()
    assert sink.rows == topic.expected


@pytest.mark.campaign
def test_records_that_were_deleted_unread_fail_the_query_unless_it_accepts_that(
    spark: SparkSession, topic: PulsarTopic, tmp_path: Path
) -> None:
    """Trap 8: of a batch whose both ends are in deleted ledgers, the loss is certain."""
    topic.send(100)
    sink = Sink(topic.stream_of(spark), tmp_path, fail_at=0)
    with pytest.raises(Exception, match="the sink failed"):
        sink.run()
    lost = topic.expected
    topic.lose()
    topic.send(10)
    with pytest.raises(Exception, match="failOnDataLoss"):
        sink.run()
    sink.batches.clear()
    sink.frame = topic.stream_of(spark, failOnDataLoss=False)
    sink.run()
    assert sink.rows == sorted(set(topic.expected) - set(lost))


@pytest.mark.campaign
def test_a_partition_that_is_added_is_read_from_its_begin(
    spark: SparkSession, topic: PulsarTopic, tmp_path: Path
) -> None:
    """Trap 11: while the stream runs."""
    topic.send(20)
    sink = Sink(topic.stream_of(spark), tmp_path)
    query = sink.start()
    until(lambda: sink.rows == topic.expected, query)
    topic.grow()
    topic.send(20)
    until(lambda: sink.rows == topic.expected and topic.backlog() == 0, query)
    query.stop()


@pytest.mark.campaign
def test_unloads_in_the_middle_repeat_and_lose_nothing(
    spark: SparkSession, topic: PulsarTopic, tmp_path: Path
) -> None:
    """Traps 10 and 11: a stream goes on over ledgers that end and begin."""
    frame: DataFrame = topic.stream_of(spark)
    sink = Sink(frame, tmp_path)
    query = sink.start()
    for _ in range(3):
        topic.send(500)
        topic.unload()
    until(lambda: sink.rows == topic.expected and topic.backlog() == 0, query)
    query.stop()


@pytest.mark.campaign
def test_a_subscription_that_another_holds_takes_no_acks_and_the_query_goes_on(
    spark: SparkSession, topic: PulsarTopic, tmp_path: Path
) -> None:
    """Trap 5: an ack that is refused is a warning; with ``strictAcks`` it ends the query."""
    with closing(client_of(topic)) as client:
        client.subscribe(topic.stream, "g", receiver_queue_size=1)
        topic.send(100)
        sink = Sink(topic.stream_of(spark), tmp_path / "one")
        sink.run()
        assert sink.rows == topic.expected
        assert topic.backlog() > 0
        strict = topic.stream_of(spark, strictAcks=True)
        with pytest.raises(Exception, match="strictAcks is on"):
            Sink(strict, tmp_path / "two").run()


@pytest.mark.campaign
def test_an_idle_stream_plans_no_batch_and_leaves_no_backlog(
    spark: SparkSession, topic: PulsarTopic, tmp_path: Path
) -> None:
    """Traps 2, 3 and 19: after several batches; stopping it takes no time."""
    sink = Sink(topic.stream_of(spark), tmp_path)
    query = sink.start()
    for _ in range(3):
        topic.send(10)
        until(lambda: sink.rows == topic.expected and topic.backlog() == 0, query)
    batches = len(sink.batches)
    assert not query.awaitTermination(2)
    assert len(sink.batches) == batches
    began = time.monotonic()
    query.stop()
    assert time.monotonic() - began < 25
