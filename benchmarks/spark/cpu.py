"""A driver: how many seconds of a processor a stream takes, in which kind of process.

On a busy machine this says more than the time that has passed.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any

from pyspark.sql import SparkSession

from benchmarks.spark import sources
from benchmarks.spark.contest import stream_group, turns
from benchmarks.spark.job import SparkJob
from benchmarks.spark.processes import between, spent
from benchmarks.spark.session import run
from benchmarks.spark.throughput import streamed


def _work(spark: SparkSession, job: SparkJob) -> dict[str, Any]:
    sources.register(spark)
    kinds: dict[str, list[dict[str, float]]] = {}

    def one(name: str, number: int) -> float:
        before = spent(os.getpid())
        streamed(spark, name, job, stream_group(f"{job.group}-cpu", number))
        took = between(before, spent(os.getpid()))
        if number:
            kinds.setdefault(name, []).append(took)
        return sum(took.values())

    return {
        **turns(job.contestants, job.rounds, one),
        "kinds": {n: _medians(s) for n, s in kinds.items()},
    }


def _medians(runs: Sequence[Mapping[str, float]]) -> dict[str, float]:
    kinds = sorted({kind for each in runs for kind in each})
    return {kind: round(median(each.get(kind, 0.0) for each in runs), 2) for kind in kinds}


if __name__ == "__main__":
    run(_work)
