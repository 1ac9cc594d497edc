"""The sink, on a real Spark and into a file."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException

from consumer_sdk.errors import ConfigurationError
from consumer_sdk.records import DeadLetter
from consumer_sdk.spark_bridge.dead_letters.sink import stream_dead_letters, write_dead_letters
from tests.spark_bridge.dead_letters.given import letter, rows, stored

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [
    pytest.mark.spark,
    # The first query starts Spark's machinery, which takes a minute where others work too.
    # pandas is not used here, but Spark looks at its version wherever it is installed.
    pytest.mark.filterwarnings("ignore:PySpark does not yet fully support pandas:FutureWarning"),
]


def timeless(letters: list[DeadLetter]) -> list[DeadLetter]:
    """Letters without the time at which they were given up."""
    return [replace(each, failed_at=0.0, headers=list(each.headers)) for each in letters]


def streamed(spark: SparkSession, source: Path, given: DataFrame) -> DataFrame:
    """A stream of the same rows."""
    given.write.parquet(str(source))
    return spark.readStream.schema(given.schema).parquet(str(source))


def test_a_batchs_rows_are_there_when_it_returns(spark: SparkSession, tmp_path: Path) -> None:
    """Each as a consumer would have written it, whichever task it was in."""
    path = tmp_path / "letters.db"
    write_dead_letters(rows(spark, range(40)).repartition(4), f"sqlite://{path}", group="etl")
    assert timeless(stored(path)) == [letter(at) for at in range(40)]
    assert all(each.failed_at > 1_600_000_000 for each in stored(path))


def test_a_batch_that_is_written_twice_is_there_once_in_a_file(
    spark: SparkSession, tmp_path: Path
) -> None:
    """A retried batch publishes again; a file knows its letters."""
    path = tmp_path / "letters.db"
    for _ in range(2):
        write_dead_letters(rows(spark, range(5)), f"sqlite://{path}", group="etl")
    assert timeless(stored(path)) == [letter(at) for at in range(5)]


@pytest.mark.campaign
def test_a_task_that_is_tried_again_loses_no_row(spark: SparkSession, tmp_path: Path) -> None:
    """What its first try wrote may be there twice elsewhere; a file has it once (Spark trap 6)."""
    path, marker = tmp_path / "letters.db", tmp_path / "failed"

    def fails_once(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from batches
        if not marker.exists():
            marker.touch()
            raise RuntimeError("the executor is gone")

    given = rows(spark, range(1200)).coalesce(1)
    write_dead_letters(given.mapInArrow(fails_once, given.schema), f"sqlite://{path}", group="etl")
    assert marker.exists()
    assert timeless(stored(path)) == [letter(at) for at in range(1200)]


@pytest.mark.campaign
def test_a_streams_rows_are_written_and_a_restart_adds_none(
    spark: SparkSession, tmp_path: Path
) -> None:
    """A stream writer, with a checkpoint, through Spark's own API."""
    path, source = tmp_path / "letters.db", tmp_path / "rows"
    frame = streamed(spark, source, rows(spark, range(30)))
    for _ in range(2):
        writer = stream_dead_letters(frame, f"sqlite://{path}", group="etl")
        query = writer.option("checkpointLocation", str(tmp_path / "checkpoint"))
        query.trigger(availableNow=True).start().awaitTermination()
    assert timeless(stored(path)) == [letter(at) for at in range(30)]


def test_a_destination_that_cannot_be_opened_fails_the_batch(
    spark: SparkSession, tmp_path: Path
) -> None:
    """The task's error, with what to do, is in the exception's text."""
    with pytest.raises(PySparkException, match=r"StoreError.*missing"):
        write_dead_letters(rows(spark, range(1)), f"sqlite://{tmp_path}/missing/letters.db")


def test_a_stream_whose_destination_fails_loses_nothing(
    spark: SparkSession, tmp_path: Path
) -> None:
    """The query fails, and the same batch is written once the destination is there."""
    folder, source = tmp_path / "later", tmp_path / "rows"
    frame = streamed(spark, source, rows(spark, range(6)))

    def run() -> None:
        writer = stream_dead_letters(frame, f"sqlite://{folder}/letters.db", group="etl")
        query = writer.option("checkpointLocation", str(tmp_path / "checkpoint"))
        query.trigger(availableNow=True).start().awaitTermination()

    with pytest.raises(PySparkException, match="StoreError"):
        run()
    folder.mkdir()
    run()
    assert timeless(stored(folder / "letters.db")) == [letter(at) for at in range(6)]


def test_what_can_be_known_is_refused_before_anything_runs(spark: SparkSession) -> None:
    """Missing columns, wrong URLs, and streams where a batch is meant, and the other way round."""
    given = rows(spark, range(1))
    with pytest.raises(ConfigurationError, match="reason"):
        write_dead_letters(given.drop("reason"), "sqlite:///letters.db")
    with pytest.raises(ConfigurationError, match="kafka://"):
        write_dead_letters(given, "orders-DLQ")
    with pytest.raises(ConfigurationError, match="write_dead_letters"):
        stream_dead_letters(given, "sqlite:///letters.db")
    stream = spark.readStream.format("rate").load()
    with pytest.raises(ConfigurationError, match="stream_dead_letters"):
        write_dead_letters(stream, "sqlite:///letters.db")


@pytest.mark.parametrize(
    "options,mode,text",
    [
        ({}, "overwrite", "only added"),
        ({"patience": "soon"}, "append", "patience='soon'"),
        ({"grop": "etl"}, "append", "unknown option grop"),
    ],
)
def test_the_format_refuses_what_it_cannot_do(
    spark: SparkSession, tmp_path: Path, options: dict[str, str], mode: str, text: str
) -> None:
    """Also where Spark's writer is used directly, options and modes are checked."""
    write_dead_letters(rows(spark, []), f"sqlite://{tmp_path}/letters.db")  # registers the format
    writer = rows(spark, range(1)).write.format("consumer_sdk_dead_letters").mode(mode)
    with pytest.raises(PySparkException, match=text):
        writer.options(url=f"sqlite://{tmp_path}/letters.db", **options).save()
