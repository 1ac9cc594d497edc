"""The two functions that a Spark program calls."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from consumer_sdk.errors import ConfigurationError, MissingExtraError
from consumer_sdk.spark_bridge.columns import import_pyarrow
from consumer_sdk.spark_bridge.feed_url import FeedUrl

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["read", "read_stream"]

_FORMAT = "consumer_sdk"


def read_stream(spark: SparkSession, url: str) -> DataFrame:
    """A streaming DataFrame of the records that consumers feed into a directory.

    Each record is in it once. Columns: those of Spark's Kafka source, ``headers``, and
    ``partitionId`` and ``position`` as text. A new query starts at the feed's first record; a
    restarted one goes on where its checkpoint says. Segments are not deleted: the feed keeps
    them, and queries read nothing but whole segments.

    Args:
        spark: the session; executors need this package and the directory.
        url: ``feed:///absolute/directory``, with the options ``maxRowsPerTrigger`` or
            ``maxBytesPerTrigger`` (what one micro-batch takes; a larger segment is taken
            alone) and ``tasks`` (the most tasks of one micro-batch; Spark's default
            parallelism otherwise).

    Raises:
        ConfigurationError: the URL or an option is wrong, or there is no such directory.
        MissingExtraError: pyspark or pyarrow is not installed.
    """
    tasks = _prepare(spark, url)
    return spark.readStream.format(_FORMAT).option("url", url).option("tasks", tasks).load()


def read(spark: SparkSession, url: str) -> DataFrame:
    """A batch DataFrame of the records that are in the directory now.

    Arguments, columns and errors: as `read_stream`; limits for a trigger mean nothing here.
    """
    tasks = _prepare(spark, url)
    return spark.read.format(_FORMAT).option("url", url).option("tasks", tasks).load()


def _prepare(spark: SparkSession, url: str) -> int:
    """Checks what can be known now, and makes the format known; returns the tasks to use."""
    directory = Path(FeedUrl.parse(url).directory)
    if not directory.is_dir():
        raise ConfigurationError(
            f"{url!r}: there is no directory {directory}: open the SparkFeed first, or make it"
        )
    import_pyarrow()
    try:
        from consumer_sdk.spark_bridge.data_source import ConsumerSdkDataSource
    except ModuleNotFoundError as error:
        raise MissingExtraError("pyspark", "spark") from error
    spark.dataSource.register(ConsumerSdkDataSource)
    return max(1, spark.sparkContext.defaultParallelism)
