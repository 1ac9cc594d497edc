"""A driver: the whole topic to a sink that drops it, as a batch and as a stream.

The contestants take turns in one session, in opposite order in every second round, so that the
state of the machine and of the JVM is the same for all. A warm-up lets each of them count the
rows: one that skips or repeats some fails.
"""

from __future__ import annotations

import tempfile
import time
from typing import Any

from pyspark.sql import SparkSession

from benchmarks.spark import sources
from benchmarks.spark.contest import STREAMS, stream_group, turns
from benchmarks.spark.job import SparkJob
from benchmarks.spark.session import run
from benchmarks.spark.streams import finished, input_rows

__all__ = ["WrongRowsError", "stream_seconds"]


class WrongRowsError(Exception):
    """A contestant did not read each row once."""


def _work(spark: SparkSession, job: SparkJob) -> dict[str, Any]:
    sources.register(spark)

    def batch(name: str, number: int) -> float:
        if number == 0:
            _check(spark, name, job)
        began = time.perf_counter()
        sources.batch(spark, name, job).write.format("noop").mode("overwrite").save()
        return job.rows / (time.perf_counter() - began)

    def stream(name: str, number: int) -> float:
        return job.rows / stream_seconds(spark, name, job, stream_group(job.group, number))

    streams = tuple(name for name in STREAMS if name in job.contestants)
    return {
        "batch": turns(job.contestants, job.rounds, batch),
        "stream": turns(streams, job.rounds, stream),
    }


def _check(spark: SparkSession, name: str, job: SparkJob) -> None:
    rows = sources.batch(spark, name, job)
    places = "count(distinct partition, offset)" if name in STREAMS else "count(*)"
    counted = rows.selectExpr("count(*)", places, "sum(length(value))").first()
    assert counted is not None  # noqa: S101 - an aggregate has one row
    if list(counted) != [job.rows, job.rows, 100 * job.rows]:
        raise WrongRowsError(f"{name} read {list(counted)}, not {job.rows} rows of 100 bytes")


def stream_seconds(spark: SparkSession, name: str, job: SparkJob, group: str) -> float:
    """Seconds of a whole query, from its start to its end."""
    options: dict[str, Any] = {
        "startingOffsets": "earliest",
        "maxOffsetsPerTrigger": job.trigger_rows,
    }
    if name == "ours":
        options["kafka.group.id"] = group
    with tempfile.TemporaryDirectory() as checkpoint:
        rows = sources.stream(spark, name, job, **options)
        began = time.perf_counter()
        query = (
            rows.writeStream.format("noop")
            .option("checkpointLocation", checkpoint)
            .trigger(availableNow=True)
            .start()
        )
        finished(query)
        seconds = time.perf_counter() - began
    if input_rows(query) != job.rows:
        raise WrongRowsError(f"{name} streamed {input_rows(query)} of {job.rows} rows")
    return seconds


if __name__ == "__main__":
    run(_work)
