"""A driver: one source alone, for the peak memory of the JVM, the workers and the runner."""

from __future__ import annotations

import os
from threading import Event, Thread
from typing import Any, Self

from pyspark.sql import SparkSession

from benchmarks.spark import sources
from benchmarks.spark.contest import STREAMS
from benchmarks.spark.job import SparkJob
from benchmarks.spark.processes import peaks
from benchmarks.spark.session import run
from benchmarks.spark.throughput import streamed

_EVERY = 0.2  # seconds between two looks; a peak is kept by the system until the process ends


def _work(spark: SparkSession, job: SparkJob) -> dict[str, Any]:
    (name,) = job.contestants
    sources.register(spark)
    with _Watch() as watch:
        sources.batch(spark, name, job).write.format("noop").mode("overwrite").save()
        if name in STREAMS:
            streamed(spark, name, job, f"{job.group}-memory")
    return watch.peaks


class _Watch:
    """Looks at the processes below this one while it is open."""

    def __init__(self) -> None:
        self.peaks: dict[str, float] = {}
        self._over = Event()
        self._thread = Thread(target=self._run)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._over.wait(_EVERY):
            for kind, peak in peaks(os.getpid()).items():
                self.peaks[kind] = max(peak, self.peaks.get(kind, 0.0))


if __name__ == "__main__":
    run(_work)
