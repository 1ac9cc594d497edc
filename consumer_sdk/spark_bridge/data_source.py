"""``format("consumer_sdk")``: the Python Data Source that Spark loads.

Spark makes instances of it, and of its readers, in processes that only plan: nothing here
connects, and what is optional is imported when it is needed.
"""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader
from pyspark.sql.types import StructType

from consumer_sdk.errors import ConfigurationError
from consumer_sdk.spark_bridge.columns import COLUMNS
from consumer_sdk.spark_bridge.feed_reader import FeedBatchReader, FeedStreamReader
from consumer_sdk.spark_bridge.feed_url import FeedUrl
from consumer_sdk.spark_bridge.frames import is_feed
from consumer_sdk.spark_bridge.pull.batch_reader import PullBatchReader
from consumer_sdk.spark_bridge.pull.option_values import count
from consumer_sdk.spark_bridge.pull.options import PullOptions
from consumer_sdk.spark_bridge.pull.stream_reader import PullStreamReader

__all__ = ["ConsumerSdkDataSource"]


class ConsumerSdkDataSource(DataSource):
    """Records of Kafka, of Pulsar, or of a directory that consumers feed.

    Options: a ``url`` (``kafka://``, ``pulsar://``, ``feed://``), or those of Spark's own Kafka
    source; see `consumer_sdk.spark_bridge.read_stream`.
    """

    @classmethod
    def name(cls) -> str:
        """What ``spark.readStream.format`` takes."""
        return "consumer_sdk"

    def schema(self) -> str:
        """The columns, by the options; see `consumer_sdk.spark_bridge.columns`."""
        names = COLUMNS if self._is_feed else PullOptions.parse(self.options).column_names
        return ", ".join(f"{name} {COLUMNS[name]}" for name in names)

    def reader(self, schema: StructType) -> DataSourceReader:
        """The batch reader."""
        if self._is_feed:
            return FeedBatchReader(*self._feed(schema))
        return PullBatchReader(self._pull(schema))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's
        """The streaming reader."""
        if self._is_feed:
            return FeedStreamReader(*self._feed(schema))
        return PullStreamReader(self._pull(schema))

    @property
    def _is_feed(self) -> bool:
        return is_feed(self.options.get("url", ""))

    def _feed(self, schema: StructType) -> tuple[FeedUrl, int]:
        _check_schema(schema, tuple(COLUMNS))
        # Spark hands options over in lower case, and adds "path" where load() has one.
        if extra := sorted({name.lower() for name in self.options} - {"url", "tasks"}):
            raise ConfigurationError(f"{', '.join(extra)}: a feed's options are part of its URL")
        url = FeedUrl.parse(self.options.get("url", ""))
        return url, url.tasks or count("tasks", self.options.get("tasks", "2"))

    def _pull(self, schema: StructType) -> PullOptions:
        """The options; a schema that names some of the columns chooses them."""
        names = schema.fieldNames()
        if set(names) <= COLUMNS.keys() and "columns" not in self.options:
            _check_schema(schema, names)
            return PullOptions.parse({**self.options, "columns": ",".join(names)})
        options = PullOptions.parse(self.options)
        _check_schema(schema, options.column_names)
        return options


def _check_schema(schema: StructType, names: Sequence[str]) -> None:
    # Spark parses a DDL text only where a SparkContext runs; this runs where none does.
    expected = _struct(names)
    if schema.simpleString() != expected or not all(field.nullable for field in schema):
        raise ConfigurationError(
            "this source's columns and types are fixed: leave .schema() out and select "
            "afterwards, or name some of them with their types, all nullable "
            f"(expected {expected}, not {schema.simpleString()})"
        )


def _struct(names: Sequence[str]) -> str:
    return f"struct<{','.join(f'{name}:{COLUMNS[name]}' for name in names)}>"
