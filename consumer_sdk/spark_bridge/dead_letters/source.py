"""``format("consumer_sdk_dead_letters")``: a sink that writes rows to a dead-letter destination.

Each task opens the destination at its first row, and closes it at its end. A commit does nothing:
letters are durable when a task has written them. A task that runs again writes its letters again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from consumer_sdk.dead_letters.urls import dead_letters_from_url
from consumer_sdk.errors import ConfigurationError
from consumer_sdk.spark_bridge.dead_letters.delivery import Delivery
from consumer_sdk.spark_bridge.dead_letters.rows import check_columns

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.datasource import DataSourceStreamArrowWriter
else:
    try:
        from pyspark.sql.datasource import DataSourceStreamArrowWriter
    except ImportError:  # PySpark 4.0, for which `stream_dead_letters` refuses
        DataSourceStreamArrowWriter = object

__all__ = ["DeadLetterDataSource"]

_OPTIONS = {"url", "group", "patience"}
_SPARKS_OWN = {"path", "checkpointlocation", "queryname"}


class DeadLetterDataSource(DataSource):
    """Options: ``url`` (a dead-letter destination), ``group``, and ``patience`` in seconds."""

    @classmethod
    def name(cls) -> str:
        """What ``df.write.format`` and ``df.writeStream.format`` take."""
        return "consumer_sdk_dead_letters"

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:  # noqa: FBT001 - Spark's
        """The batch writer."""
        if overwrite:
            raise ConfigurationError('dead letters are only added: write with .mode("append")')
        return _BatchWriter(self._delivery(schema))

    def streamWriter(  # noqa: N802 - Spark's name
        self,
        schema: StructType,
        overwrite: bool,  # noqa: FBT001 - Spark's
    ) -> DataSourceStreamArrowWriter:
        """The stream writer."""
        if overwrite:
            raise ConfigurationError('dead letters are only added: use .outputMode("append")')
        return _StreamWriter(self._delivery(schema))

    def _delivery(self, schema: StructType) -> Delivery:
        check_columns({field.name: field.dataType.simpleString() for field in schema})
        _check_names(set(self.options))
        url = self.options.get("url", "")
        dead_letters_from_url(url)  # refused here rather than in every task
        return Delivery(url, self.options.get("group", ""), _seconds(self.options))


@dataclass
class _Written(WriterCommitMessage):
    rows: int


class _BatchWriter(DataSourceArrowWriter):
    def __init__(self, delivery: Delivery) -> None:
        self._delivery = delivery

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return _Written(self._delivery.write(iterator))


class _StreamWriter(DataSourceStreamArrowWriter):
    def __init__(self, delivery: Delivery) -> None:
        self._delivery = delivery

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return _Written(self._delivery.write(iterator))


def _check_names(names: set[str]) -> None:
    unknown = {name.lower() for name in names} - _OPTIONS - _SPARKS_OWN
    if unknown:
        raise ConfigurationError(
            f"unknown option {', '.join(sorted(unknown))}: there are {', '.join(sorted(_OPTIONS))}"
        )


def _seconds(options: Mapping[str, str]) -> float:
    text = options.get("patience", "30")
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds < float("inf"):
        raise ConfigurationError(f"patience={text!r}: give seconds, 0 or more")
    return seconds
