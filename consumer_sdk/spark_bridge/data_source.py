"""``format("consumer_sdk")``: the Python Data Source that Spark loads.

Spark makes instances of it, and of its readers, also in processes that only plan. So nothing here
connects to a broker, and a reader's or a writer's module is imported when it is needed.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
)
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from consumer_sdk.errors import ConfigurationError
from consumer_sdk.spark_bridge.collector import begin_call
from consumer_sdk.spark_bridge.columns import COLUMNS
from consumer_sdk.spark_bridge.option_values import COUNT, TASKS, is_feed
from consumer_sdk.spark_bridge.pull.options.options import PullOptions

if TYPE_CHECKING:
    from consumer_sdk.spark_bridge.feed.url import FeedUrl

__all__ = ["ConsumerSdkDataSource", "source_options", "stored_options"]

_OPTION = "option."
"""Marks what ``OPTIONS (…)`` says among a table's properties."""
_METADATA = "consumer_sdk.options"


class ConsumerSdkDataSource(DataSource):
    """Reads records of Kafka, Pulsar and feeds, and writes rows to Kafka and Pulsar.

    Options: a ``url`` (``kafka://``, ``pulsar://``, ``feed://``), which ``load`` takes too, or those
    of Spark's own Kafka source; see `consumer_sdk.spark_bridge.read_stream`.
    """

    @classmethod
    def name(cls) -> str:
        """The name for ``spark.readStream.format``."""
        return "consumer_sdk"

    def schema(self) -> str | StructType:
        """The columns, by the options; see `consumer_sdk.spark_bridge.columns`."""
        begin_call()
        given = source_options(self.options)
        names = COLUMNS if _is_feed(given) else PullOptions.parse(given).column_names
        if _is_table(self.options):
            return _with_options(_columns(names), given)
        return ", ".join(f"{name} {COLUMNS[name]}" for name in names)

    def reader(self, schema: StructType) -> DataSourceReader:
        """The batch reader."""
        given = _with_tasks(self._given(schema))
        if _is_feed(given):
            from consumer_sdk.spark_bridge.feed.reader import FeedBatchReader

            return FeedBatchReader(*_feed(given, schema))
        from consumer_sdk.spark_bridge.pull.batch_reader import PullBatchReader

        return PullBatchReader(_pull(given, schema))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's
        """The streaming reader."""
        given = _with_tasks(self._given(schema))
        if _is_feed(given):
            from consumer_sdk.spark_bridge.feed.reader import FeedStreamReader

            return FeedStreamReader(*_feed(given, schema))
        from consumer_sdk.spark_bridge.pull.stream_reader import PullStreamReader

        return PullStreamReader(_pull(given, schema))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:  # noqa: FBT001 - Spark's
        """The writer of a batch; see `consumer_sdk.spark_bridge.sink.sink`."""
        from consumer_sdk.spark_bridge.sink.sink import batch_writer

        return batch_writer(self._given(schema), schema, overwrite=overwrite)

    def streamWriter(  # noqa: N802 - Spark's name
        self,
        schema: StructType,
        overwrite: bool,  # noqa: ARG002, FBT001 - Spark's
    ) -> DataSourceStreamWriter:
        """The writer of a stream."""
        from consumer_sdk.spark_bridge.sink.sink import stream_writer

        return stream_writer(self._given(schema), schema)

    def _given(self, schema: StructType) -> dict[str, str]:
        begin_call()
        return stored_options(schema) | source_options(self.options)


def _with_tasks(given: Mapping[str, str]) -> dict[str, str]:
    """With the session's parallelism as the most tasks, where the source was registered and no option says."""
    known = os.environ.get(TASKS)
    return {**given} if known is None else {"tasks": known, **given}


def _is_feed(given: Mapping[str, str]) -> bool:
    return is_feed(given.get("url", ""))


def _feed(given: Mapping[str, str], schema: StructType) -> tuple[FeedUrl, int]:
    from consumer_sdk.spark_bridge.feed.url import FeedUrl

    _check_schema(schema, tuple(COLUMNS))
    if extra := sorted(given.keys() - {"url", "tasks"}):
        raise ConfigurationError(f"{', '.join(extra)}: a feed's options are part of its URL")
    url = FeedUrl.parse(given.get("url", ""))
    return url, url.tasks or COUNT.parse("tasks", given.get("tasks", "2"))


def _pull(given: Mapping[str, str], schema: StructType) -> PullOptions:
    """The options; a schema that names some of the columns chooses them."""
    names = schema.fieldNames()
    if set(names) <= COLUMNS.keys() and "columns" not in given:
        _check_schema(schema, names)
        return PullOptions.parse({**given, "columns": ",".join(names)})
    options = PullOptions.parse(given)
    _check_schema(schema, options.column_names)
    return options


def _columns(names: Iterable[str]) -> StructType:
    """The same as a DDL text, which Spark parses only where a SparkContext runs."""
    return StructType([StructField(name, _TYPES[COLUMNS[name]]) for name in names])


_HEADER = StructType([StructField("key", StringType()), StructField("value", BinaryType())])
_TYPES: Mapping[str, DataType] = {
    "binary": BinaryType(),
    "string": StringType(),
    "int": IntegerType(),
    "bigint": LongType(),
    "timestamp": TimestampType(),
    COLUMNS["headers"]: ArrayType(_HEADER),
}


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


# -- options -------------------------------------------------------------------------------
#
# Spark hands them over in three ways. `.option()` and `.options()` give them as they are; `.load(url)`
# gives a `path`. `CREATE TABLE … USING consumer_sdk OPTIONS (…)` mixes them with the table's properties
# (`provider`, `owner`, `comment`), and gives none of them to the reader of a `SELECT`: only the table's
# columns. So a table has its options in the metadata of its first column.


def _is_table(options: Mapping[str, str]) -> bool:
    """These are the properties of a table that ``CREATE TABLE`` makes."""
    return "provider" in {name.lower() for name in options}


def source_options(options: Mapping[str, str]) -> dict[str, str]:
    """The user's options; names are in lower case.

    Raises:
        ConfigurationError: ``load()`` was given several URLs, or another one than the options.
    """
    given = {name.lower(): text for name, text in options.items()}
    if _is_table(given):
        named = {name: text for name, text in given.items() if name.startswith(_OPTION)}
        given = {name.removeprefix(_OPTION): text for name, text in named.items()}
    if "paths" in given:
        raise ConfigurationError(
            "load() was given several: give one URL, kafka://host:9092/orders,payments"
        )
    path = given.pop("path", None)
    if path is not None and given.setdefault("url", path) != path:
        raise ConfigurationError(
            "load() was given a URL, and so were the options: give one of them"
        )
    return given


def _with_options(schema: StructType, options: Mapping[str, str]) -> StructType:
    """The columns of a table, with its options."""
    made = StructType.fromJson(schema.jsonValue())
    made.fields[0].metadata[_METADATA] = json.dumps(dict(options))
    return made


def stored_options(schema: StructType) -> dict[str, str]:
    """The options of the table that has these columns; empty if it is none."""
    text = schema.fields[0].metadata.get(_METADATA) if schema.fields else None
    return json.loads(text) if text else {}
