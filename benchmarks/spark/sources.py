"""The sources by name: how a query that reads from each is written."""

from __future__ import annotations

from typing import Any

from pyspark.sql import DataFrame, SparkSession

from benchmarks.spark.job import SparkJob
from benchmarks.spark.python_sources import FixedSource, ListsSource, NaiveSource
from consumer_sdk import spark_bridge

__all__ = ["FORMATS", "batch", "register", "stream"]

FORMATS = {"jvm": "kafka", "ours": "consumer_sdk"}
"""Who has the options of Spark's own source: a query is ported by changing its format."""

_PYTHON = {"naive": NaiveSource, "arrow_fixed": FixedSource, "arrow_lists": ListsSource}


def register(spark: SparkSession) -> None:
    """Make every Python source known to the session."""
    spark_bridge.register(spark)
    for source in _PYTHON.values():
        spark.dataSource.register(source)


def batch(spark: SparkSession, name: str, job: SparkJob) -> DataFrame:
    """All rows of the topic."""
    if name in FORMATS:
        return spark.read.format(FORMATS[name]).options(**_options(job)).load()
    own = {"servers": job.servers, "topic": job.topic, "rows": str(job.rows)}
    return spark.read.format(_PYTHON[name].name()).options(**own).load()


def stream(spark: SparkSession, name: str, job: SparkJob, **options: Any) -> DataFrame:
    """The topic as a stream."""
    reader = spark.readStream.format(FORMATS[name]).options(**_options(job))
    return reader.options(**options).load()


def _options(job: SparkJob) -> dict[str, Any]:
    return {"kafka.bootstrap.servers": job.servers, "subscribe": job.topic}
