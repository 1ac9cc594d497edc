"""The functions that write a DataFrame's rows to a dead-letter destination."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from consumer_sdk.dead_letters.urls import dead_letters_from_url
from consumer_sdk.errors import ConfigurationError
from consumer_sdk.spark_bridge.arrow import import_pyarrow
from consumer_sdk.spark_bridge.dead_letters.rows import check_columns
from consumer_sdk.spark_bridge.pyspark_version import require_pyspark

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamWriter

__all__ = ["stream_dead_letters", "write_dead_letters"]

_FORMAT = "consumer_sdk_dead_letters"


def write_dead_letters(
    rows: DataFrame, destination: str, *, group: str = "spark", patience: float = 30.0
) -> None:
    """Writes a batch DataFrame's rows as dead letters, in the form that a consumer gives them.

    Letters are written at least once: a task that Spark runs again writes its rows again (a SQLite
    file keeps each once). When this returns, every row is durable. For streams: `stream_dead_letters`, or this in
    a ``foreachBatch``.

    Args:
        rows: the source's columns, ``value``, ``topic``, ``partition`` or ``partitionId`` and
            ``offset`` or ``position``, with ``reason`` (text); ``key``, ``timestamp``,
            ``headers`` (which the pull source has with ``includeHeaders``), ``errorType`` and
            ``attempts`` are optional. Other columns are ignored.
        destination: ``kafka://host:9092/topic``, ``pulsar://host:6650/topic``,
            ``kinesis://region/stream`` or ``sqlite:///path`` (on each executor's own disk).
            Without a topic, ``<topic>-<group>-DLQ``. It is part of Spark's plans. So name secrets
            by reference, ``?sasl_plain_password=env:NAME`` or ``=file:/path``; the tasks look them
            up.
        group: the group that the letters name.
        patience: seconds for which a task repeats writes that fail with a transient error, before
            it fails.

    Raises:
        ConfigurationError: a column is missing, or the destination is invalid.
        MissingExtraError: pyspark, pyarrow or the broker's client is not installed.
        pyspark.errors.PySparkException: a task failed, with the `DeadLetterError` in its text.
    """
    if rows.isStreaming:
        raise ConfigurationError("this DataFrame is a stream: use stream_dead_letters")
    options = _prepare(rows, destination, group, patience)
    rows.write.format(_FORMAT).mode("append").options(**options).save()


def stream_dead_letters(
    rows: DataFrame, destination: str, *, group: str = "spark", patience: float = 30.0
) -> DataStreamWriter:
    """Returns a writer that sends a stream's rows to the dead letters. Give it a checkpoint, and start it.

    It works as `write_dead_letters` does. After a crash, the last micro-batch is written again. It needs
    PySpark 4.1: with 4.0, call `write_dead_letters` in a ``foreachBatch``.
    """
    if not rows.isStreaming:
        raise ConfigurationError("this DataFrame is no stream: use write_dead_letters")
    require_pyspark("4.1")  # the first whose streams write Arrow; a foreachBatch needs no such
    options = _prepare(rows, destination, group, patience)
    return rows.writeStream.format(_FORMAT).outputMode("append").options(**options)


def _prepare(rows: DataFrame, destination: str, group: str, patience: float) -> dict[str, Any]:
    """Checks what can be known now, and makes the format known; returns the options."""
    check_columns({field.name: field.dataType.simpleString() for field in rows.schema})
    dead_letters_from_url(destination)
    import_pyarrow()
    _register(rows.sparkSession)
    return {"url": destination, "group": group, "patience": patience}


def _register(spark: SparkSession) -> None:
    require_pyspark()
    from consumer_sdk.spark_bridge.dead_letters.source import DeadLetterDataSource

    spark.dataSource.register(DeadLetterDataSource)
