"""A driver: the whole topic to a sink that drops it, as a batch and as a stream.

The contestants take turns in one session, in opposite order in every second round, so that the
state of the machine and of the JVM is the same for all. A warm-up lets each of them count the
rows: one that skips or repeats some fails.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Sequence
from typing import Any, NamedTuple

from pyspark.sql import SparkSession

from benchmarks.spark import sources
from benchmarks.spark.contest import STREAMS, stream_group, turns
from benchmarks.spark.job import SparkJob
from benchmarks.spark.session import run
from benchmarks.spark.streams import busy, ended_at, finished, input_rows

__all__ = ["Streamed", "WrongRowsError", "steady_rate", "streamed"]


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

    steady: dict[str, list[float]] = {}

    def stream(name: str, number: int) -> float:
        query = streamed(spark, name, job, stream_group(job.group, number))
        if number:
            steady.setdefault(name, []).append(query.steady)
        return job.rows / query.seconds

    streams = tuple(name for name in STREAMS if name in job.contestants and job.has_streams)
    batches = job.contestants if job.has_batches else ()
    return {
        "batch": turns(batches, job.rounds, batch),
        "stream": turns(streams, job.rounds, stream),
        "steady": {"runs": steady, "failures": {}},
    }


def _check(spark: SparkSession, name: str, job: SparkJob) -> None:
    rows = sources.batch(spark, name, job)
    places = "count(distinct partition, offset)" if name in STREAMS else "count(*)"
    counted = rows.selectExpr("count(*)", places, "sum(length(value))").first()
    assert counted is not None  # noqa: S101 - an aggregate has one row
    expected = [job.rows, job.rows, job.value_bytes or 100 * job.rows]
    if list(counted) != expected:
        raise WrongRowsError(f"{name} read {list(counted)}, not {expected}")


class Streamed(NamedTuple):
    """A whole query.

    Attributes:
        seconds: from its start to its end.
        steady: rows a second, between the ends of its first and last micro-batches.
    """

    seconds: float
    steady: float


def streamed(spark: SparkSession, name: str, job: SparkJob, group: str) -> Streamed:
    """Read the topic by a query with ``availableNow``."""
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
    return Streamed(seconds, steady_rate(busy(query)))


def steady_rate(batches: Sequence[dict[str, Any]]) -> float:
    """Rows a second from the end of the first micro-batch on; 0 if there was no other."""
    if len(batches) == 1:
        return 0.0
    rows = sum(batch["rows"] for batch in batches[1:])
    return float(rows / (ended_at(batches[-1]) - ended_at(batches[0])))


if __name__ == "__main__":
    run(_work)
