"""A driver: what a micro-batch takes while a few rows a second arrive.

Each round, each source has a query of its own at the default trigger; with the default checkpoint
manager, and with the one that uses the file system directly.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from typing import Any

from pyspark.sql import SparkSession

from benchmarks.spark import sources
from benchmarks.spark.contest import turns
from benchmarks.spark.job import SparkJob
from benchmarks.spark.session import run
from benchmarks.spark.streams import busy, until

WARM_BATCHES = 10
"""Micro-batches of a query that do not count: its processes start, connections are made."""

_MANAGER = "spark.sql.streaming.checkpointFileManagerClass"
_FILE_SYSTEM = (
    "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
)


def _work(spark: SparkSession, job: SparkJob) -> dict[str, Any]:
    sources.register(spark)
    found = {"default": _contest(spark, job)}
    spark.conf.set(_MANAGER, _FILE_SYSTEM)
    return found | {"filesystem": _contest(spark, job)}


def _contest(spark: SparkSession, job: SparkJob) -> dict[str, Any]:
    stages: dict[str, dict[str, float]] = {}

    def one(name: str, number: int) -> float:
        del number
        batches = _trickle(spark, name, job)
        stages[name] = _stages(batches)
        return stages[name]["triggerExecution"]

    found = turns(job.contestants, job.rounds, one)
    return {**found, "stages_ms": stages}


def _trickle(spark: SparkSession, name: str, job: SparkJob) -> list[dict[str, Any]]:
    rows = sources.stream(spark, name, job, startingOffsets="latest")
    with tempfile.TemporaryDirectory() as checkpoint:
        query = rows.writeStream.format("noop").option("checkpointLocation", checkpoint).start()
        try:
            until(query, lambda: len(busy(query)) > WARM_BATCHES)
            time.sleep(job.seconds)
            return busy(query)[WARM_BATCHES:]
        finally:
            query.stop()


def _stages(batches: list[dict[str, Any]]) -> dict[str, float]:
    """The median of each stage."""
    names = sorted({stage for batch in batches for stage in batch["ms"]})
    return {
        name: statistics.median(batch["ms"].get(name, 0) for batch in batches) for name in names
    }


if __name__ == "__main__":
    run(_work)
