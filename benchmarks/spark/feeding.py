"""A driver: a consumer feeds the topic to a directory while Spark drains the feed.

In turns with the pull source, each timed from nothing to the last row. Of the feed, the clock starts when the query is started and the consumer, a process that has imported what it
needs, is told to go. It stops when the micro-batch with the last row is done.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from benchmarks.process import ROOT
from benchmarks.spark import sources
from benchmarks.spark.contest import turns
from benchmarks.spark.job import SparkJob
from benchmarks.spark.session import run
from benchmarks.spark.streams import busy, ended_at, until_read
from benchmarks.spark.throughput import streamed
from consumer_sdk.spark_bridge import read_stream


def _work(spark: SparkSession, job: SparkJob) -> dict[str, Any]:
    sources.register(spark)
    peaks: list[float] = []

    def one(name: str, number: int) -> float:
        own = replace(job, group=f"{job.group}-{name}-{number}")
        if name == "ours":
            return job.rows / streamed(spark, name, own, own.group).seconds
        seconds, peak = _chain(spark, own)
        peaks.append(peak)
        return job.rows / seconds

    return {**turns(job.contestants, job.rounds, one), "feeder_mb": max(peaks, default=None)}


def _chain(spark: SparkSession, job: SparkJob) -> tuple[float, float]:
    """Seconds from the start of both ends to the last row, and the consumer's peak memory."""
    with tempfile.TemporaryDirectory() as folder:
        directory = Path(folder) / "feed"
        directory.mkdir()
        rows = read_stream(spark, f"feed://{directory}?{_limits(job)}")
        with _feeder(job, directory) as feeder:
            began = time.time()
            print("go", file=feeder.stdin, flush=True)
            checkpoint = Path(folder) / "checkpoint"
            writer = rows.writeStream.format("noop").option("checkpointLocation", str(checkpoint))
            ended = _drained(writer.start(), job.rows)
            return ended - began, float(feeder.communicate(timeout=30)[0])


def _limits(job: SparkJob) -> str:
    """As the pull source's, and no micro-batches that cost more than their rows."""
    most, least = job.trigger_rows, job.trigger_rows // 2
    return f"maxRowsPerTrigger={most}&minRowsPerTrigger={least}&maxTriggerDelay=700ms"


def _drained(query: StreamingQuery, rows: int) -> float:
    """When the last row was through, in seconds since the epoch."""
    try:
        until_read(query, rows)
        return ended_at(busy(query)[-1])
    finally:
        query.stop()


@contextmanager
def _feeder(job: SparkJob, directory: Path) -> Iterator[subprocess.Popen[str]]:
    """The consumer's process, ready to go."""
    command = [sys.executable, "-m", "benchmarks.spark.feeder", json.dumps(asdict(job))]
    pipe = subprocess.PIPE
    with subprocess.Popen(
        [*command, str(directory)], cwd=ROOT, stdin=pipe, stdout=pipe, text=True
    ) as process:
        try:
            assert process.stdout is not None  # noqa: S101 - it is a pipe
            process.stdout.readline()
            yield process
        finally:
            process.kill()  # nothing, when it has ended


if __name__ == "__main__":
    run(_work)
