"""A driver: a query that has read everything, at the default trigger, and gets nothing more."""

from __future__ import annotations

import tempfile
import time
from typing import Any

from pyspark.sql import SparkSession

from benchmarks.spark import sources
from benchmarks.spark.job import SparkJob
from benchmarks.spark.session import run
from benchmarks.spark.streams import until_read

SETTLED = 3.0
"""Seconds after the last row before the idle time counts: connections are made, acks sent."""


def _work(spark: SparkSession, job: SparkJob) -> dict[str, Any]:
    sources.register(spark)
    return {name: _idle(spark, name, job) for name in job.contestants}


def _idle(spark: SparkSession, name: str, job: SparkJob) -> dict[str, float]:
    """When the idle time began and ended, in seconds since the epoch."""
    rows = sources.stream(spark, name, job, startingOffsets="earliest")
    with tempfile.TemporaryDirectory() as checkpoint:
        query = rows.writeStream.format("noop").option("checkpointLocation", checkpoint).start()
        try:
            until_read(query, job.rows)
            time.sleep(SETTLED)
            began = time.time()
            time.sleep(job.seconds)
            return {"began": began, "ended": time.time()}
        finally:
            query.stop()


if __name__ == "__main__":
    run(_work)
