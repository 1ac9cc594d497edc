"""What Spark does with its Python workers, and what a broker that stalls does with them."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from consumer_sdk.testing.servers import KafkaServer
from tests.spark_bridge.pull.kafka_query import ON_SPARK, Sink, Topic, until
from tests.spark_bridge.pull.trap_query import (
    WORKER,
    Before,
    frame_of,
    spark_processes,
    until_acked,
)

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

pytestmark = [*ON_SPARK, pytest.mark.kafka]


@pytest.mark.campaign
def test_workers_that_serve_two_brokers_mix_nothing(
    spark: SparkSession, topic: Topic, own_kafka_server: KafkaServer, tmp_path: Path
) -> None:
    """Trap 14: the same topic and group on both, in turn, by the same worker processes."""
    other = Topic(own_kafka_server, topic.name)
    sinks = [Sink(frame_of(spark, each), tmp_path / each.servers) for each in (topic, other)]
    before: set[int] = set()
    for count in (10, 20, 30):
        topic.send(count)
        other.send(2 * count)
        for sink, each in zip(sinks, (topic, other), strict=True):
            sink.run()
            assert sink.rows == each.expected
            until_acked(each)
        found = set(spark_processes(WORKER))
        assert not before or found & before, "no worker was used again: nothing was tested"
        before = found


@pytest.mark.campaign
def test_workers_that_died_while_idle_are_not_missed(
    spark: SparkSession, topic: Topic, tmp_path: Path
) -> None:
    """Trap 15: Spark ends them after a minute without work, and their connections with them."""
    sink = Sink(frame_of(spark, topic), tmp_path)
    query = sink.start()
    for _ in range(3):
        topic.send(20)
        until(lambda: sink.rows == topic.expected, query)
        idle = spark_processes(WORKER)
        assert idle
        for pid in idle:
            os.kill(pid, signal.SIGKILL)
    query.stop()


def rows_by_a_loop_of_their_own(url: str) -> Any:
    """Return a function for ``mapInArrow`` that reads a topic while an event loop runs."""

    def read(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from pyspark.sql.types import IntegerType, LongType, StructField, StructType

        from consumer_sdk.spark_bridge.data_source import ConsumerSdkDataSource

        fields = [StructField("partition", IntegerType()), StructField("offset", LongType())]

        async def found() -> list[pa.RecordBatch]:
            reader = ConsumerSdkDataSource({"url": url}).reader(StructType(fields))
            return [batch for task in reader.partitions() for batch in reader.read(task)]

        for _ in batches:
            for _ in range(2):
                yield from asyncio.run(found())

    return read


def test_a_function_with_an_event_loop_reads_in_a_worker(spark: SparkSession, topic: Topic) -> None:
    """Trap 16: a UDF whose own loop runs in the thread, again and again in the same worker."""
    topic.send(100)
    once = spark.range(1, numPartitions=1)
    read = once.mapInArrow(rows_by_a_loop_of_their_own(topic.url), "partition int, offset bigint")
    for _ in range(2):
        assert sorted(map(tuple, read.collect())) == sorted(topic.expected * 2)


@pytest.mark.campaign
def test_a_task_whose_broker_stalls_fails_in_time_and_the_run_goes_on_later(
    spark: SparkSession, topic: Topic, own_kafka_server: KafkaServer, tmp_path: Path
) -> None:
    """Trap 18: AvailableNow ends, with an error that says why; no task hangs for ever."""
    slow = Topic(own_kafka_server, topic.name)
    slow.send(200)
    sink = Before(frame_of(spark, slow, **{"kafka.request.timeout.ms": "1500"}), tmp_path)
    sink.run()  # workers are connected
    slow.send(300)
    sink.happening = own_kafka_server.pause
    began = time.monotonic()
    try:
        with pytest.raises(Exception, match="TransientAdapterError"):
            sink.run()
    finally:
        own_kafka_server.resume()
    assert time.monotonic() - began < 90
    sink.run()
    assert sink.rows == slow.expected
    until_acked(slow)
