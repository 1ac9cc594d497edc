"""Avro values, decoded by a real Spark."""

from __future__ import annotations

import datetime as dt
import io
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import fastavro
import pytest
from pyspark.errors import PySparkException

from consumer_sdk.errors import ConfigurationError
from consumer_sdk.schema_registry import SchemaRegistry
from consumer_sdk.spark_bridge.decoding.avro.avro import from_avro_value
from tests.schema_registry.registry_server import running
from tests.spark_bridge.decoding.test_json_values import given, outcomes

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

pytestmark = [
    pytest.mark.spark,
    # The first query starts Spark's machinery, which takes a minute where others work too.
]

SCHEMA = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "name", "type": ["null", "string"], "default": None},
    ],
}
EVERY_TYPE = {
    "type": "record",
    "name": "Every",
    "fields": [
        {"name": "flag", "type": "boolean"},
        {"name": "small", "type": "int"},
        {"name": "ratio", "type": "float"},
        {"name": "wide", "type": ["null", "int", "long"]},
        {"name": "raw", "type": "bytes"},
        {"name": "state", "type": {"type": "enum", "name": "State", "symbols": ["A", "B"]}},
        {"name": "hash", "type": {"type": "fixed", "name": "Hash", "size": 2}},
        {"name": "tags", "type": {"type": "array", "items": ["null", "string"]}},
        {"name": "prices", "type": {"type": "map", "values": "double"}},
        {"name": "again", "type": ["null", "State"]},
        {
            "name": "inner",
            "type": {"type": "record", "name": "In", "fields": [{"name": "x", "type": "int"}]},
        },
        {"name": "day", "type": {"type": "int", "logicalType": "date"}},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {
            "name": "cost",
            "type": {"type": "bytes", "logicalType": "decimal", "precision": 6, "scale": 2},
        },
        {"name": "uid", "type": {"type": "string", "logicalType": "uuid"}},
        {"name": "clock", "type": {"type": "int", "logicalType": "time-millis"}},
    ],
}
OF_EVERY_TYPE = {
    "flag": True,
    "small": -1,
    "ratio": 0.5,
    "wide": 2**40,
    "raw": b"\xff",
    "state": "B",
    "hash": b"ab",
    "tags": ["t", None],
    "prices": {"eur": 1.5},
    "again": "A",
    "inner": {"x": 3},
    "day": dt.date(2020, 2, 29),
    "at": dt.datetime(2020, 1, 1, tzinfo=dt.UTC),
    "cost": Decimal("12.34"),
    "uid": "0e5f5a0e-0000-4000-8000-000000000000",
    "clock": 1000,
}


def avro(schema: Any, value: dict[str, Any]) -> bytes:
    """A value's bytes, without a head."""
    sink = io.BytesIO()
    fastavro.schemaless_writer(sink, schema, value)
    return sink.getvalue()


def headed(number: int, data: bytes) -> bytes:
    """As a schema registry's clients write it."""
    return b"\0" + number.to_bytes(4, "big") + data


ONE = avro(SCHEMA, {"id": 1, "name": "a"})


def test_every_type_arrives_exactly(spark: SparkSession) -> None:
    """Nested ones and logical ones too; those that Spark does not know stay numbers and texts."""
    data = avro(EVERY_TYPE, {**OF_EVERY_TYPE, "clock": dt.time(0, 0, 1)})
    ((decoded, reason),) = outcomes(from_avro_value(given(spark, data), EVERY_TYPE))
    assert reason is None
    at = decoded.pop("at")  # in the session's own time zone
    assert at.timestamp() == dt.datetime(2020, 1, 1, tzinfo=dt.UTC).timestamp()
    expected = {name: value for name, value in OF_EVERY_TYPE.items() if name != "at"}
    assert decoded == expected


def test_bytes_that_are_no_value_are_rejected_and_not_null(spark: SparkSession) -> None:
    """Too short, too long, or of something else; the good ones beside them are decoded."""
    rows = given(spark, ONE, b"", ONE[:-1], ONE + b"?", b"not avro", None, b"\x02\x02\x02\xff")
    found = outcomes(from_avro_value(rows, SCHEMA))
    assert found[0] == ({"id": 1, "name": "a"}, None)
    assert found[5] == (None, None)  # a tombstone (Spark trap 12)
    for decoded, reason in (*found[1:5], found[6]):
        assert decoded is None
        assert reason.startswith("the value is no Avro of the schema: ")
    assert found[3][1].endswith("1 bytes are left over")


def test_a_tombstone_is_rejected_where_there_should_be_none(spark: SparkSession) -> None:
    """As JSON's."""
    found = outcomes(from_avro_value(given(spark, None), SCHEMA, reject_null=True))
    assert found == [(None, "there is no value")]


def test_a_value_that_no_column_can_hold_is_rejected_alone(spark: SparkSession) -> None:
    """Avro's numbers may be larger than their types: that fails no task."""
    schema = {"type": "record", "name": "N", "fields": [{"name": "n", "type": "int"}]}
    wide = {"type": "record", "name": "N", "fields": [{"name": "n", "type": "long"}]}
    rows = given(spark, avro(wide, {"n": 7}), avro(wide, {"n": 2**40}), avro(wide, {"n": 8}))
    found = outcomes(from_avro_value(rows, schema))
    assert [decoded for decoded, _ in found] == [{"n": 7}, None, {"n": 8}]
    assert "does not fit its column" in found[1][1]


def test_a_head_names_the_schema_that_a_value_was_written_with(spark: SparkSession) -> None:
    """Older and newer values become the reader's; who has no head, or no schema, is rejected."""
    old = {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "int"}]}
    rows = given(
        spark,
        headed(7, ONE),
        headed(3, avro(old, {"id": 5})),
        headed(9, ONE),
        ONE,
        b"\0\0",
        None,
    )
    found = outcomes(from_avro_value(rows, SCHEMA, schemas={7: SCHEMA, 3: old}))
    assert found[:3] == [
        ({"id": 1, "name": "a"}, None),
        ({"id": 5}, None),
        (None, "the schema 9 is unknown"),
    ]
    assert [reason for _, reason in found[3:]] == [
        "the value does not begin with a zero and a schema's number",
        "the value does not begin with a zero and a schema's number",
        None,
    ]


def test_a_registry_that_is_away_fails_the_task_and_rejects_nothing(spark: SparkSession) -> None:
    """A good value is not given up because a look-up failed."""

    def away(number: int) -> str:
        raise ConnectionError(f"no answer about schema {number}")

    rows = given(spark, headed(7, ONE))
    with pytest.raises(PySparkException, match="no answer about schema 7"):
        outcomes(from_avro_value(rows, SCHEMA, schemas=away))


def test_a_registry_knows_the_schemas(spark: SparkSession) -> None:
    """The reader's is the latest, with what it imports; other schemas' values are rejected."""
    with running() as server:
        state = {"type": "enum", "name": "State", "symbols": ["PAID"]}
        server.add(1, state, subject="State")
        links = [{"name": "State", "subject": "State", "version": 1}]
        server.add(2, SCHEMA)
        fields = [*SCHEMA["fields"], {"name": "state", "type": ["null", "State"], "default": None}]
        latest = SCHEMA | {"fields": fields}
        server.add(3, latest, references=links)
        server.add(4, {}, kind="JSON", subject="other")
        rows = given(
            spark, headed(2, ONE), headed(3, ONE + b"\2\0"), headed(4, ONE), headed(5, ONE)
        )
        found = from_avro_value(rows, registry=server.url, subject="orders-value")
        assert outcomes(found) == [
            ({"id": 1, "name": "a"}, None),
            ({"id": 1, "name": "a", "state": "PAID"}, None),
            (None, "the schema 4 is JSON and not AVRO"),
            (None, "the schema 5 is unknown"),
        ]
    away = SchemaRegistry(server.url, attempts=1)
    with pytest.raises(PySparkException, match="does not answer"):
        outcomes(from_avro_value(given(spark, headed(7, ONE)), SCHEMA, registry=away))
    for options in ({}, {"schemas": {}, "registry": away}, {"registry": away}):
        with pytest.raises(ConfigurationError):
            from_avro_value(rows, SCHEMA if len(options) == 2 else None, **options)


@pytest.mark.campaign
def test_values_of_a_stream_are_decoded(spark: SparkSession, tmp_path: Path) -> None:
    """The same function runs in a micro-batch."""
    source = str(tmp_path / "rows")
    rows = given(spark, ONE, b"?", None)
    rows.write.parquet(source)
    stream = from_avro_value(spark.readStream.schema(rows.schema).parquet(source), SCHEMA)
    query = stream.writeStream.format("memory").queryName("decoded_avro")
    query.trigger(availableNow=True).start().awaitTermination()
    found = outcomes(spark.table("decoded_avro"))
    assert [decoded for decoded, _ in found] == [{"id": 1, "name": "a"}, None, None]
    assert [reason is None for _, reason in found] == [True, False, True]
