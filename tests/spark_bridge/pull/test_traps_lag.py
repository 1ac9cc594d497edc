"""Lag of a query on a real Kafka, while it catches up."""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from consumer_sdk.records import Partition
from consumer_sdk.spark_bridge import read_stream
from consumer_sdk.spark_bridge.metrics.metrics import count_bytes, watch
from tests.spark_bridge.metrics.test_watch import Reports, start
from tests.spark_bridge.pull.kafka_query import ON_SPARK, Kafka, Topic

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [*ON_SPARK, pytest.mark.kafka]


def test_the_lag_of_each_partition_falls_to_zero(
    spark: SparkSession, kafka_server: Kafka, tmp_path: Path
) -> None:
    """Sixty records, twenty at a time: the reports say how many each partition has left."""
    topic = Topic(kafka_server, f"lag-{uuid.uuid4().hex[:8]}")
    topic.send(60)
    reports = Reports()
    with watch(spark, reports):
        frame = read_stream(spark, topic.url, startingOffsets="earliest", maxOffsetsPerTrigger="20")
        start(count_bytes(frame), topic.name, tmp_path / "checkpoint").awaitTermination()
        # A slow machine's query is idle for long enough before its end to report that as well.
        found = [each for each in reports.until_ended(topic.name)[topic.name] if not each.is_idle]
    left = [[each.sources[0].lag.behind[Partition(topic.name, p)] for p in "01"] for each in found]
    assert left == [[20, 20], [10, 10], [0, 0]]
    sizes = [len(f"{partition}:{offset}") for partition, offset in topic.expected]
    assert (found[-1].rows, found[-1].bytes) == (60, sum(sizes))
