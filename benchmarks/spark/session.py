"""The frame of a driver: a program with one Spark session that prints one line of JSON.

Every driver is a process of its own, with a JVM of its own: no compiled code, cached client or
Python worker goes from one kind of measurement into the next.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from benchmarks.process import ROOT
from benchmarks.spark.jars import jar_list
from benchmarks.spark.job import SparkJob

__all__ = ["run"]

_QUIET = "-Dlog4j2.level=error"
_SMOKE = f"{_QUIET} -XX:TieredStopAtLevel=1 -XX:+UseSerialGC"


def run(work: Callable[[SparkSession, SparkJob], dict[str, Any]]) -> None:
    """Run the job in the program's first argument and print what ``work`` found."""
    job = SparkJob(**json.loads(sys.argv[1]))
    with _session(is_smoke=job.is_smoke) as spark:
        found = work(spark, job)
    print(json.dumps(found), flush=True)


@contextmanager
def _session(*, is_smoke: bool) -> Iterator[SparkSession]:
    """Two cores, and what a long run would have anyway: nothing is tuned but the noise."""
    # Else workers are whatever `python3` is on the PATH.
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    # An installed package has byte code, which the round that does not count makes here.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    os.environ["PYTHONPATH"] = str(ROOT)  # of the workers that plan: they import the sources
    with tempfile.TemporaryDirectory(prefix="consumer_sdk-spark-") as folder:
        os.chdir(folder)
        spark = _builder(Path(folder), is_smoke=is_smoke).getOrCreate()
        spark.sparkContext.setLogLevel("OFF")
        try:
            yield spark
        finally:
            spark.stop()
            os.chdir(ROOT)


def _builder(folder: Path, *, is_smoke: bool) -> Any:
    builder: Any = SparkSession.builder
    return (
        builder.master("local[2]")
        .appName("consumer_sdk benchmark")
        .config("spark.jars", jar_list())
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.extraJavaOptions", _SMOKE if is_smoke else _QUIET)
        .config("spark.executorEnv.PYTHONPATH", str(ROOT))
        .config("spark.sql.shuffle.partitions", "2")  # only the check of what was read shuffles
        .config("spark.sql.streaming.numRecentProgressUpdates", "100000")
        .config("spark.sql.warehouse.dir", str(folder / "warehouse"))
        .config("spark.local.dir", str(folder))
    )
