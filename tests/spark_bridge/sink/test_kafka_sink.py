"""Rows into a real Kafka, by a real Spark, and back by the source."""

from __future__ import annotations

import os
import re
import signal
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import PySparkException, StreamingQueryException

from consumer_sdk import spark_bridge
from tests.spark_bridge.pull.kafka_query import ON_SPARK, Kafka, Topic
from tests.spark_bridge.pull.trap_query import WORKER, spark_processes

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

EXAMPLE = Path(__file__).parents[3] / "docs" / "snippets" / "spark" / "copy_orders.py"

pytestmark = [*ON_SPARK, pytest.mark.kafka]

SCHEMA = (
    "topic string, partition int, key binary, value binary, "
    "headers array<struct<key:string,value:binary>>, offset bigint"
)


def rows_of(spark: SparkSession, *rows: Mapping[str, Any]) -> DataFrame:
    """A frame of rows, with null where they say nothing."""
    names = [part.split()[0] for part in re.sub(r"<.*>", "", SCHEMA).split(", ")]
    return spark.createDataFrame([tuple(row.get(n) for n in names) for row in rows], SCHEMA)


def read(spark: SparkSession, topic: Topic) -> list[dict[str, Any]]:
    """All that a topic has, in order."""
    frame = spark_bridge.read(spark, topic.url, includeHeaders=True)
    found = frame.select("partition", "key", "value", "headers").orderBy("partition", "offset")
    return [row.asDict(recursive=True) for row in found.collect()]


def test_rows_arrive_as_they_are(spark: SparkSession, topic: Topic) -> None:
    """Keys, headers, tombstones, empty bytes and partitions; other columns mean nothing."""
    headers = [("a", b"1"), ("b", None), ("a", b"")]
    frame = rows_of(
        spark,
        {"partition": 1, "key": b"k", "value": b"\x00\xff", "headers": headers, "offset": 7},
        {"partition": 1, "key": b"t", "headers": []},
        {"partition": 1},
        {"partition": 0, "value": b""},
    )
    frame.coalesce(1).write.format("consumer_sdk").mode("append").save(
        f"kafka://{topic.servers}/{topic.name}"
    )
    kept = [{"key": "a", "value": b"1"}, {"key": "b", "value": None}, {"key": "a", "value": b""}]
    assert read(spark, topic) == [
        {"partition": 0, "key": None, "value": b"", "headers": None},
        {"partition": 1, "key": b"k", "value": b"\x00\xff", "headers": kept},
        {"partition": 1, "key": b"t", "value": None, "headers": None},
        {"partition": 1, "key": None, "value": None, "headers": None},
    ]


def test_options_and_columns_of_sparks_own_sink_work_unchanged(
    spark: SparkSession, kafka_server: Kafka, topic: Topic
) -> None:
    """Texts, a topic for each row, and settings of Java's producer; keys choose partitions."""
    other = Topic(kafka_server, f"{topic.name}-2")
    given = spark.range(4000).selectExpr(
        f"if(id % 2 = 0, '{topic.name}', '{other.name}') AS topic",
        "cast(id % 50 AS string) AS key",
        "cast(id AS string) AS value",
    )
    settings = {
        "kafka.bootstrap.servers": topic.servers,
        "kafka.acks": "-1",
        "kafka.compression.type": "gzip",
        "kafka.linger.ms": "5",
        "kafka.batch.size": "2000",
        "includeHeaders": "true",
    }
    given = given.coalesce(1)  # one task, whose order is kept
    given.write.format("consumer_sdk").mode("append").options(**settings).save()
    for number, each in enumerate((topic, other)):
        found = read(spark, each)
        assert sorted(int(row["value"]) for row in found) == [*range(number, 4000, 2)]
        places = {(row["key"], row["partition"]) for row in found}
        assert len(places) == 25, "a key is in two partitions"
        assert {partition for _, partition in places} == {0, 1}
        last: dict[bytes, int] = {}
        for row in found:
            key, value = row["key"], int(row["value"])
            assert value > last.get(key, -1), "a task's rows of one key are out of order"
            last[key] = value


def test_a_stream_that_is_started_again_goes_on(
    spark: SparkSession, kafka_server: Kafka, topic: Topic, tmp_path: Path
) -> None:
    """Each micro-batch is in the topic when Spark logs it."""
    origin = Topic(kafka_server, f"{topic.name}-from")
    for count in (30, 50):
        origin.send(count)
        frame = spark_bridge.read_stream(spark, origin.url, startingOffsets="earliest")
        writer = frame.select("key", "value").writeStream.format("consumer_sdk")
        writer = writer.option("checkpointLocation", str(tmp_path)).trigger(availableNow=True)
        writer.start(f"kafka://{topic.servers}/{topic.name}").awaitTermination()
    expected = sorted(b"%d:%d" % place for place in origin.expected)
    assert sorted(row["value"] for row in read(spark, topic)) == expected


def test_a_task_that_is_tried_again_loses_no_row(
    spark: SparkSession, topic: Topic, tmp_path: Path
) -> None:
    """What its first try wrote is there twice: at least once."""
    marker = tmp_path / "failed"

    def fails_once(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from batches
        if not marker.exists():
            marker.touch()
            raise RuntimeError("the executor is gone")

    rows = spark.range(25_000, numPartitions=1).selectExpr("string(id) AS value")
    failing = rows.mapInArrow(fails_once, rows.schema)
    failing.write.format("consumer_sdk").mode("append").save(
        f"kafka://{topic.servers}/{topic.name}"
    )
    assert marker.exists()
    counts = Counter(int(row["value"]) for row in read(spark, topic))
    assert counts.keys() == set(range(25_000))
    assert set(counts.values()) <= {1, 2}


@pytest.mark.campaign
def test_workers_that_are_killed_lose_nothing(
    spark: SparkSession, kafka_server: Kafka, topic: Topic, tmp_path: Path
) -> None:
    """A stream, whose tasks end in the middle, and whose query is started again where Spark gives up."""
    origin = Topic(kafka_server, f"{topic.name}-from")
    chance = Random(20)

    def started() -> StreamingQuery:
        frame = spark_bridge.read_stream(spark, origin.url, startingOffsets="earliest")
        writer = frame.select("key", "value").writeStream.format("consumer_sdk")
        writer = writer.option("checkpointLocation", str(tmp_path)).trigger(availableNow=True)
        return writer.start(f"kafka://{topic.servers}/{topic.name}")

    for _ in range(20):
        origin.send(3000)
        query = started()
        with suppress(StreamingQueryException):  # Spark gives up after three tries of a task
            while not query.awaitTermination(max(1, chance.randrange(3))):
                for pid in spark_processes(WORKER):
                    os.kill(pid, signal.SIGKILL)
                if chance.random() < 0.5:
                    break
            query.awaitTermination()
    started().awaitTermination()
    found = Counter(row["value"] for row in read(spark, topic))
    assert found.keys() == {b"%d:%d" % place for place in origin.expected}


def test_the_pages_example_works(
    spark: SparkSession, kafka_server: Kafka, topic: Topic, tmp_path: Path
) -> None:
    """As it stands there, with topics of this test's own."""
    copies = Topic(kafka_server, f"{topic.name}-copies")
    example = EXAMPLE.read_text(encoding="utf-8")
    for old, new in (("{KAFKA}/orders", topic.name), ("{KAFKA}/copies", copies.name)):
        assert old in example
        example = example.replace(old, f"{topic.servers}/{new}")
    names: dict[str, Any] = {}
    exec(compile(example, "copy_orders.py", "exec"), names)  # noqa: S102 - the page's own
    names["query"].processAllAvailable()
    names["query"].stop()
    found = {row["key"]: row["value"] for row in read(spark, copies)}
    assert found == {b"%d" % each: b'{"id":%d}' % each for each in range(1000)}


@pytest.mark.parametrize(
    "columns, options, message",
    [
        (["value"], {}, "no topic: give the option topic, or a column 'topic'"),
        pytest.param(["key"], {"topic": "t"}, "no column 'value'", marks=pytest.mark.campaign),
        (["offset AS value"], {"topic": "t"}, "column 'value' is bigint.*cast it"),
        (["value"], {"topic": "missing"}, "topic 'missing' does not exist: create it"),
        pytest.param(
            ["cast(null AS string) topic", "value"],
            {},
            "row 0 of a batch has null in column 'topic'",
            marks=pytest.mark.campaign,
        ),
        pytest.param(
            ["value", "7 AS partition"],
            {"topic": ""},
            "partition 7: topic '.*' has .* 0 to 1",
            marks=pytest.mark.campaign,
        ),
        pytest.param(
            ["cast(repeat('x', 2000) AS binary) AS value"],
            {"topic": "", "kafka.max.request.size": "1000"},
            "has 2,082 bytes, and max.request.size allows 1,000",
            marks=pytest.mark.campaign,
        ),
        (["value"], {"topic": "t", "kafka.transactional.id": "t"}, "without a transaction"),
        pytest.param(
            ["value"],
            {"topic": "t", "topics": "t"},
            "unknown option topics: did you mean topic",
            marks=pytest.mark.campaign,
        ),
    ],
)
def test_what_cannot_be_written_is_refused_before_anything_is(
    spark: SparkSession, topic: Topic, columns: list[str], options: dict[str, str], message: str
) -> None:
    """With what was wrong, and what to do."""
    named = {name: text or topic.name for name, text in options.items()}
    given = rows_of(spark, {"value": b"v"}).selectExpr(*columns)
    writer = given.write.format("consumer_sdk").mode("append")
    with pytest.raises(PySparkException, match=message):
        writer.options(**{"kafka.bootstrap.servers": topic.servers}, **named).save()
    assert read(spark, topic) == []


def test_a_batch_cannot_replace_a_topics_records(spark: SparkSession, topic: Topic) -> None:
    """A log is only added to."""
    writer = rows_of(spark, {"value": b"v"}).write.format("consumer_sdk").mode("overwrite")
    with pytest.raises(PySparkException, match=r'write with .mode\("append"\)'):
        writer.save(f"kafka://{topic.servers}/{topic.name}")
