"""Claims about the source that need no Spark session."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("pyspark")

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from consumer_sdk.errors import ConfigurationError
from consumer_sdk.spark_bridge.columns import COLUMNS
from consumer_sdk.spark_bridge.data_source import ConsumerSdkDataSource
from consumer_sdk.spark_bridge.pull.batch_reader import PullBatchReader
from consumer_sdk.spark_bridge.pull.stream_reader import PullStreamReader

KINDS = {
    "string": StringType(),
    "binary": BinaryType(),
    "int": IntegerType(),
    "bigint": LongType(),
    "timestamp": TimestampType(),
}
HEADER = StructType([StructField("key", StringType()), StructField("value", BinaryType())])
SCHEMA = StructType(
    [StructField(name, KINDS.get(kind, ArrayType(HEADER))) for name, kind in COLUMNS.items()]
)


@pytest.mark.parametrize(
    "options, complaint",
    [
        ({"startingOffsets": "earliest"}, "startingoffsets: a feed's options are part of its URL"),
        ({"tasks": "x"}, "tasks='x'"),
        ({"tasks": "0"}, "tasks='0'"),
    ],
)
def test_options_that_a_feed_does_not_have_are_refused(
    tmp_path: Path, options: dict[str, str], complaint: str
) -> None:
    """Also where a program calls ``format`` itself: it would think that they are kept."""
    source = ConsumerSdkDataSource({"url": f"feed://{tmp_path}", **options})
    with pytest.raises(ConfigurationError, match=complaint):
        source.reader(SCHEMA)
    with pytest.raises(ConfigurationError, match=complaint):
        source.streamReader(SCHEMA)


@pytest.mark.parametrize("options,tasks", [({}, 4), ({"tasks": "9"}, 9)])
def test_a_registered_source_has_as_many_tasks_as_run_at_a_time(
    monkeypatch: pytest.MonkeyPatch, options: dict[str, str], tasks: int
) -> None:
    """As `read_stream` does it; a Python task costs 20 ms of Spark's. The option comes first."""
    monkeypatch.setenv("CONSUMER_SDK_SPARK_TASKS", "4")
    source = ConsumerSdkDataSource({"url": "kafka://nowhere:9092/t", **options})
    pulled = StructType([StructField("offset", LongType())])
    for reader in (source.reader(pulled), source.streamReader(pulled)):
        assert isinstance(reader, PullBatchReader | PullStreamReader)
        assert reader._options.sizing.tasks == tasks
