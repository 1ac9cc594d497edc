"""A driver: rows that Spark makes, as a batch into a topic, by its own Kafka sink and by ours.

Each run writes to a topic of its own. All are deleted at the end. After the warm-up the topic is
counted: who loses rows fails.
"""

from __future__ import annotations

import asyncio
import time
import uuid
from typing import Any

from pyspark.sql import SparkSession

from benchmarks import kafka_topic
from benchmarks.spark import sources
from benchmarks.spark.contest import turns
from benchmarks.spark.job import SparkJob
from benchmarks.spark.session import run
from benchmarks.spark.throughput import WrongRowsError
from consumer_sdk.testing.servers import ExternalKafka

ROWS = (
    "cast(concat('key-', id % 10000) AS binary) AS key",
    "cast(lpad(id, 100, 'v') AS binary) AS value",
)


def _work(spark: SparkSession, job: SparkJob) -> dict[str, Any]:
    sources.register(spark)
    written: list[str] = []
    try:
        return {
            **turns(
                job.contestants,
                job.rounds,
                lambda name, number: _one(spark, job, name, number, written),
            )
        }
    finally:
        # Not before: Spark keeps the JVM's producer, which may still ask for a topic of an earlier run.
        for topic in written:
            asyncio.run(kafka_topic.delete(job.servers, topic))


def _one(spark: SparkSession, job: SparkJob, name: str, number: int, written: list[str]) -> float:
    """Rows a second; the topic is added to ``written``."""
    topic = f"writing-{uuid.uuid4().hex[:8]}"
    asyncio.run(ExternalKafka(job.servers).create_topic(topic, kafka_topic.PARTITIONS))
    written.append(topic)
    rows = spark.range(job.rows, numPartitions=2).selectExpr(*ROWS)
    writer = rows.write.format(sources.FORMATS[name]).mode("append").option("topic", topic)
    began = time.perf_counter()
    writer.option("kafka.bootstrap.servers", job.servers).save()
    seconds = time.perf_counter() - began
    if number == 0:
        _check(spark, name, job, topic)
    return job.rows / seconds


def _check(spark: SparkSession, name: str, job: SparkJob, topic: str) -> None:
    reader = spark.read.format("kafka").option("kafka.bootstrap.servers", job.servers)
    counted = (
        reader.option("subscribe", topic).load().selectExpr("count(*)", "count(distinct value)")
    )
    if list(counted.first() or ()) != [job.rows, job.rows]:
        raise WrongRowsError(f"{name} wrote {counted.first()}, not {job.rows} rows")


if __name__ == "__main__":
    run(_work)
