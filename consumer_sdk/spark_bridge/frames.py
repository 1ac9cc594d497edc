"""The functions that a Spark program calls."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from consumer_sdk.errors import ConfigurationError
from consumer_sdk.spark_bridge.arrow import import_pyarrow
from consumer_sdk.spark_bridge.feed.url import FeedUrl
from consumer_sdk.spark_bridge.option_values import TASKS, is_feed
from consumer_sdk.spark_bridge.pull.options.options import PullOptions
from consumer_sdk.spark_bridge.pyspark_version import require_pyspark

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["read", "read_stream", "register"]

_FORMAT = "consumer_sdk"
_PYTHON_START = str(Path(__file__).parent / "python_start")


def register(spark: SparkSession) -> None:
    """Registers ``format("consumer_sdk")`` with a session.

    If the whole package is installed, Spark finds the format by itself, by the module
    ``pyspark_consumer_sdk``. A source that is registered starts sooner: its Python processes take
    PySpark from its folder, instead of compiling what they import from Spark's zip. It also has as many
    tasks as Spark runs at a time, unless the option ``tasks`` says otherwise.

    Raises:
        MissingExtraError: pyspark or pyarrow is not installed, or PySpark is older than 4.0.
    """
    import_pyarrow()
    require_pyspark()
    from pyspark.errors import AnalysisException

    from consumer_sdk.spark_bridge.data_source import ConsumerSdkDataSource

    try:
        with _told_processes(getattr(spark, "sparkContext", None)):
            spark.dataSource.register(ConsumerSdkDataSource)
    except AnalysisException as error:
        # PySpark 4.0 refuses what it has found by itself, as the docstring says.
        if error.getCondition() != "DATA_SOURCE_ALREADY_EXISTS":
            raise


@contextmanager
def _told_processes(context: SparkContext | None) -> Iterator[None]:
    """What is registered meanwhile has processes that start with `python_start`, and know the session's parallelism.

    Of Spark Connect there is no context: processes are the server's.
    """
    if context is None:
        yield
        return
    before = context.environment
    path = [_PYTHON_START, before.get("PYTHONPATH", "")]
    told = {"PYTHONPATH": os.pathsep.join(filter(None, path)), TASKS: _tasks(context)}
    context.environment = before | told
    try:
        yield
    finally:
        context.environment = before


def read_stream(spark: SparkSession, url: str | None = None, **options: Any) -> DataFrame:
    """Returns a streaming DataFrame of a broker's records, or of a feed that consumers write.

    Columns: those of Spark's own Kafka source, with the same types: ``key``, ``value``,
    ``topic``, ``partition``, ``offset``, ``timestamp``, ``timestampType``, and ``headers`` with
    ``includeHeaders=True``; from Pulsar and from feeds also ``partitionId`` and ``position``, as
    text. Each record is read once, and the query's checkpoint says where a restart goes on.

    **Brokers** (``kafka://host:9092/topic?group=name``, ``pulsar://…``, or no URL and the options
    of Spark's Kafka source). A new query begins at the latest record; ``startingOffsets`` says
    otherwise. The group's offset follows the micro-batches that Spark has logged as committed, and
    has no effect on what is read. The group must have no members. If it is not certain yet that a
    micro-batch is committed, the offset moves with the next one. That is so for the first three
    micro-batches of a run (except a query's very first), and for the one of ``Trigger.Once``. With
    ``asyncProgressTrackingEnabled`` set ``ackMode=commit``. The query waits out an outage of the
    broker of up to 30 seconds.

    **Feeds** (``feed:///absolute/directory``, ``feed+s3://…``). A new query begins at the first
    segment that is left. Segments are read whole.

    Args:
        spark: the session; executors need this package, and a feed's directory.
        url: what to read. The URL of a feed takes the options ``maxRowsPerTrigger`` or
            ``maxBytesPerTrigger`` (the limit of a micro-batch; a larger segment is read alone) and
            ``tasks``.
        options: of a broker: ``startingOffsets``, ``maxOffsetsPerTrigger``, ``failOnDataLoss``
            and the others of Spark's Kafka source; ``ackMode`` (``auto``, ``commit``,
            ``none``), ``strictAcks``, ``store``, ``columns``, ``tasks`` (the most tasks of one
            micro-batch; Spark's default parallelism otherwise). Values may be dictionaries, for
            ``startingOffsets``, and lists, for ``subscribe``. Names with a dot are passed as
            ``**{"kafka.bootstrap.servers": "…"}``.

    Raises:
        ConfigurationError: the URL or an option is wrong, or there is no such directory.
        MissingExtraError: pyspark or pyarrow is not installed, or PySpark is older than 4.0.
    """
    given = _prepare(spark, url, options)
    return spark.readStream.format(_FORMAT).options(**given).load()


def read(spark: SparkSession, url: str | None = None, **options: Any) -> DataFrame:
    """Returns a batch DataFrame of the records that are there now.

    Arguments, columns and errors: as `read_stream`. A batch query of a broker reads all records,
    unless ``startingOffsets`` and ``endingOffsets`` say otherwise, and moves no group. Limits of a
    trigger have no effect.
    """
    given = _prepare(spark, url, options)
    return spark.read.format(_FORMAT).options(**given).load()


def _prepare(spark: SparkSession, url: str | None, options: Mapping[str, Any]) -> dict[str, str]:
    """Checks what can be known now, and makes the format known; returns Spark's options."""
    given = {name: _text(value) for name, value in options.items()}
    if url is not None:
        given["url"] = url
    # Of Spark Connect there is none: clients, secrets and directories are the server's.
    context = getattr(spark, "sparkContext", None)
    if url is not None and is_feed(url):
        _check_feed(url, options, is_here=context is not None)
    else:
        parsed = PullOptions.parse(given)
        if context is not None:
            parsed.open_reader()
    register(spark)
    return given if context is None else {"tasks": _tasks(context), **given}


def _tasks(context: SparkContext) -> str:
    """At most as many tasks as run at a time."""
    return str(max(1, context.defaultParallelism))


def _check_feed(url: str, options: Mapping[str, Any], *, is_here: bool) -> None:
    if extra := sorted(options.keys() - {"tasks"}):
        raise ConfigurationError(f"{', '.join(extra)}: a feed's options are part of its URL")
    feed = FeedUrl.parse(url)
    # Of another file system or machine, the first look of a task tells.
    if is_here and url.startswith("feed:"):
        feed.check_exists()


def _text(value: Any) -> str:
    """As Spark's options have it, which are texts: JSON of a dictionary, commas for a list."""
    if isinstance(value, Mapping):
        return json.dumps(value)
    if isinstance(value, list | tuple):
        return ",".join(map(str, value))
    return str(value).lower() if isinstance(value, bool) else str(value)
