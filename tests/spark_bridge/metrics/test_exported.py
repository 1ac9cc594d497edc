"""What Prometheus and OpenTelemetry read of queries on a real Spark."""

from __future__ import annotations

import asyncio
import queue
import threading
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader

from consumer_sdk import telemetry
from consumer_sdk.spark_bridge import QueryStats, SparkFeed, read_stream, watch
from tests.spark_bridge.feeding import messages
from tests.spark_bridge.metrics.test_watch import LONGEST, fed
from tests.spark_bridge.pull.kafka_query import ON_SPARK, Kafka, Topic
from tests.telemetry.test_spark_metrics import key, points, scraped

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

pytestmark = [*ON_SPARK]


class Heard:
    """Reports of queries, one after another."""

    def __init__(self) -> None:
        self._reports: queue.SimpleQueue[QueryStats] = queue.SimpleQueue()

    def __call__(self, stats: QueryStats) -> None:
        self._reports.put(stats)

    def until(self, is_so: Callable[[QueryStats], bool]) -> QueryStats:
        """The first report from now on of which it is so."""
        while True:
            stats = self._reports.get(timeout=LONGEST)
            if is_so(stats):
                return stats


def start(rows: DataFrame, name: str, checkpoint: Path) -> StreamingQuery:
    """A query that runs until it is stopped."""
    writer = rows.writeStream.format("noop").queryName(name)
    return writer.option("checkpointLocation", str(checkpoint)).start()


def test_running_query_on_a_feed_is_scraped(spark: SparkSession, tmp_path: Path) -> None:
    """By both exporters, through an end and a restart; its gauges end with it, its counters go on."""
    heard, directory = Heard(), tmp_path / "feed"
    url = fed(directory, 19) + "&retention=committed&reader=billing"
    place = {"system": "feed", "group": "billing", "stream": str(directory)}
    ours = key(**place, query="fed", source="0")
    with watch(spark, heard) as metrics:
        first = start(read_stream(spark, url), "fed", tmp_path / "checkpoint")
        heard.until(lambda stats: stats.rows == 20)
        found = scraped(metrics)
        received = "messaging_client_consumed_messages_total"
        assert found[received] == {ours | {("operation", "receive")}: 20}
        assert found["consumer_sdk_lag"] == {ours: 0}
        assert found["consumer_sdk_lag_seconds"] == {ours: 0}
        assert found["consumer_sdk_spark_batches_total"] == {key(query="fed"): 2}
        assert found["consumer_sdk_spark_active"] == {key(query="fed"): 1}
        assert found["consumer_sdk_spark_batch_duration_seconds"][key(query="fed")] > 0
        first.stop()
        heard.until(lambda stats: not stats.is_active)
        ended = scraped(metrics)
        assert "consumer_sdk_lag" not in ended
        assert ended["consumer_sdk_spark_active"] == {key(query="fed"): 0}

        asyncio.run(feed_more(directory))
        second = start(read_stream(spark, url), "fed", tmp_path / "checkpoint")
        heard.until(lambda stats: stats.rows == 10 and stats.is_active)
        assert_opentelemetry(metrics, directory)
        second.stop()
        heard.until(lambda stats: not stats.is_active)


async def feed_more(directory: Path) -> None:
    """Ten records in two segments, which are one micro-batch."""
    async with SparkFeed(directory, max_wait=0.0, max_rows=5) as writer:
        await writer.write(messages(20, 29))


def assert_opentelemetry(metrics: Any, directory: Path) -> None:
    """The counters of both runs, and the gauges of the one that runs."""
    reader = InMemoryMetricReader()
    telemetry.otel(metrics, provider=MeterProvider([reader]))
    ours = {
        "messaging.system": "feed",
        "messaging.consumer.group.name": "billing",
        "messaging.destination.name": str(directory),
        "consumer_sdk.spark.query": "fed",
        "consumer_sdk.spark.source": "0",
    }
    found = points(reader)
    received = found["messaging.client.consumed.messages"]
    assert received == [({**ours, "messaging.operation.name": "receive"}, 30)]
    assert found["consumer_sdk.lag"] == [(ours, 0)]
    assert found["consumer_sdk.spark.batches"] == [({"consumer_sdk.spark.query": "fed"}, 3)]


def test_failed_query_is_counted(spark: SparkSession, tmp_path: Path) -> None:
    """An alert can tell it from one that was stopped."""
    heard = Heard()
    url = fed(tmp_path / "feed", 19)  # two micro-batches

    def fail(_rows: DataFrame, batch: int) -> None:
        if batch == 1:
            raise RuntimeError("the sink is away")

    with watch(spark, heard) as metrics:
        writer = read_stream(spark, url).writeStream.foreachBatch(fail).queryName("fails")
        writer.option("checkpointLocation", str(tmp_path / "checkpoint")).start()
        heard.until(lambda stats: not stats.is_active)
        found = scraped(metrics)
        assert found["consumer_sdk_spark_failures_total"] == {key(query="fails"): 1}
        assert found["consumer_sdk_spark_active"] == {key(query="fails"): 0}


@pytest.mark.kafka
def test_lag_of_a_pull_from_kafka_is_told_in_records_and_seconds(
    spark: SparkSession, kafka_server: Kafka, tmp_path: Path
) -> None:
    """Records that come while a micro-batch runs are behind since before they came."""
    topic = Topic(kafka_server, f"metered-{uuid.uuid4().hex[:8]}")
    topic.send(2)
    has_begun, has_more = threading.Event(), threading.Event()
    scrapes: queue.SimpleQueue[Any] = queue.SimpleQueue()

    def hold(rows: DataFrame, _batch: int) -> None:
        has_begun.set()
        assert has_more.wait(LONGEST)
        rows.write.format("noop").mode("overwrite").save()

    def scrape(stats: QueryStats) -> None:
        if not stats.is_idle:
            scrapes.put(scraped(metrics))

    with watch(spark, scrape) as metrics:
        rows = read_stream(spark, topic.url, startingOffsets="earliest", maxOffsetsPerTrigger="20")
        writer = rows.writeStream.foreachBatch(hold).queryName(topic.name)
        query = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).start()
        assert has_begun.wait(LONGEST)
        topic.send(60)
        has_more.set()
        found = [scrapes.get(timeout=LONGEST) for _ in range(4)]
        query.stop()
    shared = {"system": "kafka", "group": topic.name, "stream": topic.name, "source": "0"}
    ours = {p: key(**shared, query=topic.name, partition=p) for p in "01"}
    lags = [each["consumer_sdk_lag"] for each in found]
    assert [sum(each[ours[p]] for p in "01") for each in lags] == [0, 40, 20, 0]
    for each in found:
        for labels, behind in each["consumer_sdk_lag"].items():
            seconds = each["consumer_sdk_lag_seconds"][labels]
            assert (seconds == 0) == (behind == 0)
    received = found[-1]["messaging_client_consumed_messages_total"]
    assert received == {key(**shared, query=topic.name, operation="receive"): 62}
