"""Rejected rows on their way to the dead letters, on a real Spark."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark.errors import PySparkException

from consumer_sdk.errors import ConfigurationError
from consumer_sdk.spark_bridge.columns import COLUMNS
from consumer_sdk.spark_bridge.decoding.json_values import from_json_value
from consumer_sdk.spark_bridge.rejects import route_rejects, split_rejects
from tests.spark_bridge.dead_letters.given import stored

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [
    pytest.mark.spark,
    # The first query starts Spark's machinery, which takes a minute where others work too.
]

SCHEMA = "id INT NOT NULL"
VALUES = [b'{"id":1}', b"{}", None, b"not json", b'{"id":2}']
WHY = {1: "the field id is missing or null", 3: "the value is malformed JSON"}


def orders(spark: SparkSession) -> DataFrame:
    """Records with a value each, as a source gives them."""
    rows = [
        (None, value and bytearray(value), "orders", 0, at, None, None, None, "0", str(at))
        for at, value in enumerate(VALUES)
    ]
    schema = ", ".join(f"{name} {kind}" for name, kind in COLUMNS.items())
    return spark.createDataFrame(rows, schema)


def offsets(rows: DataFrame) -> list[int]:
    """Which records these are."""
    return sorted(row["offset"] for row in rows.select("offset").collect())


def check_letters(path: Path) -> None:
    """The rejects are there, as they were, with why."""
    letters = stored(path)
    assert [(int(each.position), each.value) for each in letters] == [(1, b"{}"), (3, b"not json")]
    for each in letters:
        assert each.error.startswith(WHY[int(each.position)])
        assert (each.partition.stream, each.partition.id, each.group) == ("orders", "0", "etl")


class Process:
    """A user's part of a micro-batch; the first time it may fail."""

    def __init__(self, letters: Path, *, fails: bool = False) -> None:
        self.seen: list[tuple[int, list[int], bool]] = []
        self._letters = letters
        self._fails = fails

    def __call__(self, rows: DataFrame, number: int) -> None:
        assert "reason" not in rows.columns
        self.seen.append((number, offsets(rows), bool(stored(self._letters))))
        if self._fails:
            self._fails = False
            raise RuntimeError("the warehouse is away")


def run(spark: SparkSession, folder: Path, process: Process, letters: Path) -> None:
    """One query over the orders, from its checkpoint to their end."""
    source = str(folder / "orders")
    if not Path(source).exists():
        orders(spark).coalesce(1).write.parquet(source)
    stream = spark.readStream.schema(orders(spark).schema).parquet(source)
    route = route_rejects(f"sqlite://{letters}", process, group="etl")
    writer = from_json_value(stream, SCHEMA).writeStream.foreachBatch(route)
    query = writer.option("checkpointLocation", str(folder / "checkpoint"))
    query.trigger(availableNow=True).start().awaitTermination()


def test_every_row_is_on_one_side(spark: SparkSession) -> None:
    """Tombstones are on the accepted one; the reason goes with the rejected."""
    accepted, rejected = split_rejects(from_json_value(orders(spark), SCHEMA))
    assert offsets(accepted) == [0, 2, 4]
    assert offsets(rejected) == [1, 3]
    assert [row[0] for row in accepted.select("decoded.id").orderBy("offset").collect()] == [
        1,
        None,
        2,
    ]
    with pytest.raises(ConfigurationError, match="reason"):
        split_rejects(accepted)


def test_a_streams_rejects_become_letters_and_the_others_go_on(
    spark: SparkSession, tmp_path: Path
) -> None:
    """The letters are durable before the rows are processed, and nothing stays cached."""
    letters = tmp_path / "letters.db"
    process = Process(letters)
    run(spark, tmp_path, process, letters)
    assert process.seen == [(0, [0, 2, 4], True)]
    check_letters(letters)
    assert spark.sparkContext._jsc.getPersistentRDDs().isEmpty()


@pytest.mark.campaign
def test_a_process_that_fails_sees_its_micro_batch_again(
    spark: SparkSession, tmp_path: Path
) -> None:
    """With the same number; the letters are there once in a file, and nothing is lost."""
    letters = tmp_path / "letters.db"
    process = Process(letters, fails=True)
    with pytest.raises(PySparkException, match="the warehouse is away"):
        run(spark, tmp_path, process, letters)
    run(spark, tmp_path, process, letters)
    assert process.seen == [(0, [0, 2, 4], True)] * 2
    check_letters(letters)


@pytest.mark.campaign
def test_rejects_that_cannot_be_written_hold_their_micro_batch_up(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Nothing is processed before its rejects are safe; then it goes on where it was."""
    letters = tmp_path / "later" / "letters.db"
    process = Process(letters)
    with pytest.raises(PySparkException, match="StoreError"):
        run(spark, tmp_path, process, letters)
    assert process.seen == []
    letters.parent.mkdir()
    run(spark, tmp_path, process, letters)
    assert process.seen == [(0, [0, 2, 4], True)]
    check_letters(letters)


def test_a_destination_that_is_none_is_refused_before_the_query(tmp_path: Path) -> None:
    """Not in the first micro-batch."""
    with pytest.raises(ConfigurationError, match="kafka://"):
        route_rejects("rejects", Process(tmp_path))
