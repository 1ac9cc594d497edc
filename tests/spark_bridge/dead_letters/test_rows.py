"""From rows to dead letters."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pyarrow as pa
import pytest

from consumer_sdk.errors import ConfigurationError
from consumer_sdk.records import DeadLetter, Partition
from consumer_sdk.spark_bridge.columns import COLUMNS, arrow_schema
from consumer_sdk.spark_bridge.dead_letters.rows import check_columns, letters_of
from consumer_sdk.spark_bridge.errors import DeadLetterError

WHEN = dt.datetime(2020, 9, 13, 12, 26, 40, 7000, tzinfo=dt.UTC)
NEEDED = {"value": "binary", "topic": "string", "partition": "int", "offset": "bigint"}
WHY = {"reason": "string"}


def batch(**changes: Any) -> pa.RecordBatch:
    """One row with the source's columns and a reason."""
    row = {
        "key": b"k",
        "value": b"\xff",
        "topic": "orders",
        "partition": 3,
        "offset": 41,
        "timestamp": WHEN,
        "timestampType": 0,
        "headers": [{"key": "trace", "value": b"1"}, {"key": "none", "value": None}],
        "partitionId": "3",
        "position": "41",
        "reason": "malformed",
    }
    schema = arrow_schema().append(pa.field("reason", pa.string()))
    return pa.RecordBatch.from_pylist([row | changes], schema)


def letter(batch: pa.RecordBatch) -> DeadLetter:
    """What becomes of one row."""
    (found,) = letters_of(batch, "etl", 1.5)
    return found


def test_a_row_becomes_the_letter_that_a_consumer_writes() -> None:
    """The record is as it was, with where it came from and why."""
    assert letter(batch()) == DeadLetter(
        partition=Partition("orders", "3"),
        position="41",
        key=b"k",
        value=b"\xff",
        headers=[("trace", b"1"), ("none", None)],
        timestamp=1_600_000_000_007,
        error="malformed",
        error_type="rejected",
        attempts=1,
        group="etl",
        failed_at=1.5,
    )


def test_a_row_of_nulls_becomes_a_letter_of_none() -> None:
    """A tombstone without key, headers or time stays what it was (Spark trap 12)."""
    found = letter(batch(key=None, value=None, headers=None, timestamp=None, reason=None))
    assert (found.key, found.value, found.timestamp, found.error) == (None, None, None, "")
    assert found.headers == []


def test_a_shard_is_named_by_its_texts() -> None:
    """Brokers without numbers fill the text columns only; those win where both are there."""
    changes = {"partitionId": "shardId-1", "position": "7:0", "partition": None, "offset": None}
    found = letter(batch(**changes))
    assert (found.partition.id, found.position) == ("shardId-1", "7:0")


def test_numbers_alone_name_the_record() -> None:
    """A query that was ported from Spark's Kafka source has no text columns."""
    only = ["value", "topic", "partition", "offset", "reason"]
    found = letter(batch().select(only))
    assert (str(found.partition.id), found.position, found.key) == ("3", "41", None)


def test_values_cast_to_text_are_bytes_again() -> None:
    """``CAST(value AS STRING)``, as every Kafka query has it, loses nothing but what it lost."""
    fields = [("key", pa.string()), ("value", pa.string()), ("topic", pa.string())]
    fields += [("partition", pa.int32()), ("offset", pa.int64()), ("reason", pa.string())]
    row = {"key": "ä", "value": "{", "topic": "t", "partition": 0, "offset": 0, "reason": "no"}
    found = letter(pa.RecordBatch.from_pylist([row], pa.schema(fields)))
    assert (found.key, found.value) == ("ä".encode(), b"{")


@pytest.mark.parametrize("micros", [-(2**62), -1, 2**62])
def test_any_timestamp_is_kept(micros: int) -> None:
    """A time that no datetime can hold does not hold the letters up."""
    at = batch().schema.get_field_index("timestamp")
    odd = pa.array([micros], pa.timestamp("us", tz="UTC"))
    assert letter(batch().set_column(at, "timestamp", odd)).timestamp == micros // 1000


@pytest.mark.parametrize(
    "nulls",
    [["topic"], ["partition", "partitionId"], ["offset", "position"]],
    ids=["topic", "partition", "position"],
)
def test_a_row_from_nowhere_is_a_typed_error(nulls: list[str]) -> None:
    """A letter that nobody could trace back is not written in silence."""
    with pytest.raises(DeadLetterError, match=nulls[0]):
        letter(batch(**dict.fromkeys(nulls)))


def test_the_sources_columns_with_a_reason_are_accepted() -> None:
    """All columns of the bridge, and those of Spark's Kafka source; strangers are ignored."""
    check_columns({**COLUMNS, **WHY, "other": "double"})
    check_columns({**NEEDED, **WHY})


def test_columns_are_known_in_upper_and_lower_case() -> None:
    """As in Spark: an optional column written otherwise is not left out in silence."""
    rows = batch()
    shouted = rows.rename_columns([name.upper() for name in rows.schema.names])
    assert letter(shouted) == letter(rows)
    check_columns({name.upper(): kind for name, kind in {**NEEDED, **WHY}.items()})
    with pytest.raises(ConfigurationError, match=r"key.*double"):
        check_columns({**NEEDED, **WHY, "Key": "double"})


@pytest.mark.parametrize("missing", ["value", "topic", "partition", "offset", "reason"])
def test_a_missing_column_is_refused(missing: str) -> None:
    """The error names it before anything runs."""
    types = {name: kind for name, kind in {**NEEDED, **WHY}.items() if name != missing}
    with pytest.raises(ConfigurationError, match=missing):
        check_columns(types)


def test_a_column_of_another_type_is_refused() -> None:
    """The error says what to cast it to."""
    with pytest.raises(ConfigurationError, match=r"value.*double.*binary or string"):
        check_columns({**NEEDED, **WHY, "value": "double"})
