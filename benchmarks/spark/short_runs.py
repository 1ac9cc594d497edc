"""A driver: short runs of a stream, alone and beside busy programs.

A run reads ten records with ``availableNow`` and a new checkpoint. The contestants take turns in one
session; the round that does not count starts Spark's machinery.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from pyspark.sql import SparkSession

from benchmarks.spark import sources
from benchmarks.spark.contest import Standings, stream_group, turns
from benchmarks.spark.job import SparkJob
from benchmarks.spark.session import run
from benchmarks.spark.throughput import streamed

BUSY = 8
"""Programs that never wait, on two cores."""


def _work(spark: SparkSession, job: SparkJob) -> dict[str, Any]:
    sources.register(spark)
    found = {"alone": _contest(spark, job, "alone")}
    # Spark gives a Python process ten seconds to start, which no setting changes: beside a busy machine's
    # other work, a smoke test with so many would end the query.
    with _busy_loops(1 if job.is_smoke else BUSY):
        return found | {"loaded": _contest(spark, job, "loaded")}


def _contest(spark: SparkSession, job: SparkJob, title: str) -> Standings:
    def one(name: str, number: int) -> float:
        group = stream_group(f"{job.group}-{title}", number)
        return streamed(spark, name, job, group).seconds

    return turns(job.contestants, job.rounds, one)


@contextmanager
def _busy_loops(count: int) -> Iterator[None]:
    # They end with the driver, also if that is killed.
    program = "import os; driver = os.getppid()\nwhile os.getppid() == driver: pass"
    command = [sys.executable, "-c", program]
    loops = [subprocess.Popen(command) for _ in range(count)]
    try:
        yield
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()


if __name__ == "__main__":
    run(_work)
