"""Rows as records: which columns, and what they may hold."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import Row

from consumer_sdk.errors import ConfigurationError
from consumer_sdk.spark_bridge.errors import SinkError
from consumer_sdk.spark_bridge.sink.rows import SinkColumns
from consumer_sdk.spark_bridge.sink.sink import record_batches

HEADERS = "array<struct<key:string,value:binary>>"
ALL = {
    "partition": "int",
    "topic": "string",
    "key": "string",
    "headers": HEADERS,
    "value": "binary",
}
HEADER = pa.struct([("key", pa.string()), ("value", pa.binary())])


def records(columns: SinkColumns, **arrays: Any) -> list[Any]:
    """Topic, keys, values, partitions and headers of each part of a batch."""
    return [
        (
            each.topic,
            None if each.keys is None else each.keys.to_pylist(),
            each.values.to_pylist(),
            None if each.partitions is None else each.partitions.to_pylist(),
            each.headers,
        )
        for each in columns.records_of(pa.RecordBatch.from_pydict(arrays))
    ]


def test_rows_go_to_their_topics_in_order() -> None:
    """Every column stays beside its row."""
    columns = SinkColumns.find(ALL, None)
    headers = pa.array([[("a", b"1")], None, [], [("b", None)]], pa.list_(HEADER))
    assert records(
        columns,
        partition=pa.array([0, None, 2, 3], pa.int32()),
        topic=["x", "y", "x", "x"],
        key=["é", None, "b", None],
        headers=headers,
        value=[b"1", None, b"", b"\xff"],
    ) == [
        (
            "x",
            ["é".encode(), b"b", None],
            [b"1", b"", b"\xff"],
            [0, 2, 3],
            [[("a", b"1")], [], [("b", None)]],
        ),
        ("y", None, [None], [None], None),
    ]


def test_the_option_comes_before_the_column() -> None:
    """As in Spark's own sink; names may differ in case, and the very name comes first."""
    columns = SinkColumns.find({"Value": "string", "topic": "string", "value": "string"}, "t")
    assert records(columns, Value=["no"], topic=pa.array([None], pa.string()), value=["v"]) == [
        ("t", None, [b"v"], None, None)
    ]


@pytest.mark.parametrize(
    "types, message",
    [
        ({}, r"no column 'value': select what is written as it \(there are none\)"),
        ({"value": "string"}, r"no topic: give the option topic, or a column 'topic'"),
        ({**ALL, "value": "int"}, r"column 'value' is int, .* takes binary or string: cast it"),
        ({**ALL, "key": "bigint"}, r"column 'key' is bigint"),
        ({**ALL, "topic": "binary"}, r"column 'topic' is binary, and the sink takes string"),
        ({**ALL, "partition": "bigint"}, r"column 'partition' is bigint, and the sink takes int"),
        ({**ALL, "headers": "map<string,string>"}, r"column 'headers' is map<string,string>"),
    ],
)
def test_columns_that_cannot_be_written_are_refused(types: dict[str, str], message: str) -> None:
    """With their types, before Spark runs anything."""
    with pytest.raises(ConfigurationError, match=message):
        SinkColumns.find(types, None)


@pytest.mark.parametrize("kind", ["string collate UTF8_LCASE", "varchar(9)", "char(9)"])
def test_every_kind_of_text_is_text(kind: str) -> None:
    """Spark has several."""
    SinkColumns.find({**ALL, "value": kind, "topic": kind}, None)


def test_rows_that_cannot_be_records_are_refused() -> None:
    """A topic or a header's name that is null."""
    columns = SinkColumns.find({"topic": "string", "value": "binary"}, None)
    with pytest.raises(SinkError, match="row 1 of a batch has null in column 'topic'"):
        records(columns, topic=["t", None], value=[b"", b""])
    columns = SinkColumns.find({"headers": HEADERS, "value": "binary"}, "t")
    headers = pa.array([[(None, b"1")]], pa.list_(HEADER))
    with pytest.raises(SinkError, match="has no key"):
        records(columns, headers=headers, value=[b""])


def test_rows_of_an_older_pyspark_become_the_same_records() -> None:
    """It has no Arrow for a stream's sink: rows, with bytearrays and rows in them."""
    columns = SinkColumns.find({"offset": "bigint"} | ALL, None)
    row = Row("offset", "partition", "topic", "key", "headers", "value")
    header = Row("key", "value")
    rows = [row(7, 1, "t", "k", [header("a", bytearray(b"1"))], bytearray(b"v"))] * 2
    (batch,) = record_batches(rows, columns.places)
    (found,) = columns.records_of(batch)
    assert (found.keys.to_pylist(), found.values.to_pylist()) == ([b"k"] * 2, [b"v"] * 2)
    assert found.partitions.to_pylist() == [1, 1]
    assert found.headers == [[("a", b"1")]] * 2
