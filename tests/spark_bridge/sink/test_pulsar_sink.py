"""Rows into a real Pulsar, by a real Spark, and back by the source."""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import pytest
from pyspark.errors import PySparkException

from consumer_sdk import spark_bridge
from tests.spark_bridge.pull.kafka_query import ON_SPARK
from tests.spark_bridge.pull.pulsar_query import PulsarTopic

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from consumer_sdk.testing.servers import PulsarServer

pytestmark = [*ON_SPARK, pytest.mark.pulsar]

SCHEMA = "partition int, key string, value binary, headers array<struct<key:string,value:binary>>"


@pytest.fixture
def target(pulsar_server: PulsarServer, spark: SparkSession) -> PulsarTopic:
    """Give a topic with two partitions, which a subscription keeps."""
    spark_bridge.register(spark)
    topic = PulsarTopic(pulsar_server, f"sink-{uuid.uuid4().hex[:8]}")
    assert read(spark, topic) == []  # makes the subscription
    return topic


def read(spark: SparkSession, topic: PulsarTopic) -> list[dict[str, Any]]:
    """All that a topic has, in order."""
    frame = spark_bridge.read(spark, topic.url(), includeHeaders=True)
    found = frame.select("partition", "key", "value", "headers", "position").collect()
    rows = [row.asDict(recursive=True) for row in found]
    rows.sort(key=lambda row: (row["partition"], [int(n) for n in row.pop("position").split(":")]))
    return rows


def url_of(topic: PulsarTopic, options: str = "") -> str:
    """What the sink takes."""
    return f"pulsar://{urlsplit(topic.server.service_url).netloc}/{topic.name}{options}"


@pytest.mark.parametrize(
    "options",
    [
        pytest.param("", marks=pytest.mark.campaign),
        "?batching=key&compression=zstd",
        pytest.param("?batching=none", marks=pytest.mark.campaign),
    ],
)
def test_rows_arrive_as_they_are(spark: SparkSession, target: PulsarTopic, options: str) -> None:
    """Keys, properties, tombstones, empty bytes and partitions, in the order of their task."""
    headers = [("a", b"1"), ("b", b"\xff")]
    rows = [(1, "k", b"\x00\xff", headers), (1, "t", None, []), (0, None, b"", None)]
    rows += [(0, "k", b"%d" % number, None) for number in range(50)]
    frame = spark.createDataFrame(rows, SCHEMA).coalesce(1)
    frame.write.format("consumer_sdk").mode("append").save(url_of(target, options))
    kept = [{"key": "a", "value": b"1"}, {"key": "b", "value": b"\\xff"}]
    found = read(spark, target)
    assert found == [
        {"partition": 0, "key": None, "value": b"", "headers": None},
        *(
            {"partition": 0, "key": b"k", "value": b"%d" % number, "headers": None}
            for number in range(50)
        ),
        {"partition": 1, "key": b"k", "value": b"\x00\xff", "headers": kept},
        {"partition": 1, "key": b"t", "value": None, "headers": None},
    ]


@pytest.mark.campaign
def test_a_stream_that_is_started_again_goes_on(
    spark: SparkSession, target: PulsarTopic, tmp_path: Path
) -> None:
    """Each micro-batch is in the topic when Spark logs it; a key stays in its partition."""
    rows = spark.range(3000).selectExpr("string(id % 20) AS key", "string(id) AS value")
    for number in range(2):
        rows.write.parquet(str(tmp_path / "rows" / f"part={number}"))
        frame = spark.readStream.schema(rows.schema).parquet(str(tmp_path / "rows"))
        writer = frame.writeStream.format("consumer_sdk").trigger(availableNow=True)
        writer = writer.option("checkpointLocation", str(tmp_path / "checkpoint"))
        writer.start(url_of(target)).awaitTermination()
    found = read(spark, target)
    assert sorted(int(row["value"]) for row in found) == sorted([*range(3000)] * 2)
    assert len({(row["key"], row["partition"]) for row in found}) == 20


@pytest.mark.parametrize(
    "columns, message",
    [
        (["value", "7 AS partition"], "partition 7: topic '.*' has the partitions 0 to 1"),
        pytest.param(
            ["cast(repeat('x', 6000000) AS binary) AS value"],
            "MessageTooBig.*batching=none",
            marks=pytest.mark.campaign,
        ),
    ],
)
def test_what_cannot_be_written_fails_the_task(
    spark: SparkSession, target: PulsarTopic, columns: list[str], message: str
) -> None:
    """With what was wrong, and what to do."""
    frame = spark.createDataFrame([(None, None, b"v", None)], SCHEMA).selectExpr(*columns)
    with pytest.raises(PySparkException, match=message):
        frame.write.format("consumer_sdk").mode("append").save(url_of(target))
    assert read(spark, target) == []
