"""``format("consumer_sdk")``: the Python Data Source that Spark loads."""

from __future__ import annotations

from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader
from pyspark.sql.types import StructType

from consumer_sdk.errors import ConfigurationError
from consumer_sdk.spark_bridge.columns import COLUMNS
from consumer_sdk.spark_bridge.feed_reader import FeedBatchReader, FeedStreamReader
from consumer_sdk.spark_bridge.feed_url import FeedUrl

__all__ = ["ConsumerSdkDataSource"]


class ConsumerSdkDataSource(DataSource):
    """Options: ``url`` (a ``feed://`` URL), and ``tasks``, used where the URL names none."""

    @classmethod
    def name(cls) -> str:
        """What ``spark.readStream.format`` takes."""
        return "consumer_sdk"

    def schema(self) -> str:
        """The columns; see `consumer_sdk.spark_bridge.columns`."""
        return ", ".join(f"{name} {kind}" for name, kind in COLUMNS.items())

    def reader(self, schema: StructType) -> DataSourceReader:
        """The batch reader."""
        url, tasks = self._plan(schema)
        return FeedBatchReader(url, tasks)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's
        """The streaming reader."""
        url, tasks = self._plan(schema)
        return FeedStreamReader(url, tasks)

    def _plan(self, schema: StructType) -> tuple[FeedUrl, int]:
        _check_schema(schema)
        url = FeedUrl.parse(self.options.get("url", ""))
        return url, url.tasks or int(self.options.get("tasks", "2"))


def _check_schema(schema: StructType) -> None:
    # Spark parses a DDL text only where a SparkContext runs; this runs where none does.
    expected = f"struct<{','.join(f'{name}:{kind}' for name, kind in COLUMNS.items())}>"
    if schema.simpleString() != expected:
        raise ConfigurationError(
            "this source's columns are fixed: leave .schema() out and select afterwards "
            f"(expected {expected}, not {schema.simpleString()})"
        )
