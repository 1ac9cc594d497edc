"""Avro schemas and their Spark types."""

from __future__ import annotations

import json
from typing import Any

import pytest

from consumer_sdk.errors import ConfigurationError
from consumer_sdk.spark_bridge.decoding.avro.types import plain_schema, spark_type
from consumer_sdk.spark_bridge.decoding.avro.values import checked_schema


def record(*types: Any) -> dict[str, Any]:
    """A record with a field for each type."""
    fields = [{"name": f"f{at}", "type": each} for at, each in enumerate(types)]
    return {"type": "record", "name": "R", "namespace": "a.b", "fields": fields}


@pytest.mark.parametrize(
    "kind,expected",
    [
        ("int", "int"),
        (["null", "int"], "int"),
        (["int", "long"], "bigint"),
        (["null", "float", "double"], "double"),
        ({"type": "string", "avro.java.string": "String"}, "string"),
        (
            {"type": "array", "items": {"type": "map", "values": "bytes"}},
            "array<map<string,binary>>",
        ),
        ({"type": "long", "logicalType": "timestamp-micros"}, "timestamp"),
        ({"type": "long", "logicalType": "local-timestamp-millis"}, "timestamp_ntz"),
        ({"type": "long", "logicalType": "timestamp-nanos"}, "bigint"),
        ({"type": "long", "logicalType": "time-micros"}, "bigint"),
        ({"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 3}, "decimal(9,3)"),
        ({"type": "bytes", "logicalType": "decimal", "precision": 99}, "binary"),
        ({"type": "string", "logicalType": "uuid"}, "string"),
    ],
)
def test_a_type_has_its_spark_type(kind: Any, expected: str) -> None:
    """The types of Spark's own decoder."""
    assert spark_type(record(kind)).simpleString() == f"struct<f0:{expected}>"


@pytest.mark.parametrize("name", ["E", "a.b.E"])
def test_a_type_is_known_by_its_name_afterwards(name: str) -> None:
    """With and without its name space."""
    enum = {"type": "enum", "name": "E", "namespace": "a.b", "symbols": ["X"]}
    assert spark_type(record(enum, ["null", name]))["f1"].dataType.simpleString() == "string"


@pytest.mark.parametrize(
    "kind,place",
    [
        (["int", "string"], "at f0: a union of 2"),
        (["null"], "at f0: a union of 0"),
        ({"type": "array", "items": ["string", "long"]}, r"at f0\[\]"),
        ({"type": "map", "values": "Unknown"}, r"at f0\{\}"),
        (["null", "R"], "contains itself"),
        (7, "at f0: 7"),
    ],
)
def test_what_has_no_spark_type_is_refused_by_its_place(kind: Any, place: str) -> None:
    """A schema that no column can have is found before any value is read."""
    with pytest.raises(ConfigurationError, match=place):
        spark_type(record(kind))


@pytest.mark.parametrize("schema", ["string", record()])
def test_a_schema_without_fields_is_refused(schema: Any) -> None:
    """Columns need names."""
    with pytest.raises(ConfigurationError, match="no record with fields"):
        spark_type(schema)


def test_a_plain_schema_keeps_all_but_unknown_logical_types() -> None:
    """Defaults may look like schemas, and are none."""
    odd = {"type": "string", "logicalType": "uuid"}
    known = {"type": "int", "logicalType": "date"}
    schema = record(odd, known)
    schema["fields"][0]["default"] = odd
    plain = plain_schema(schema)
    assert plain["fields"] == [
        {"name": "f0", "type": {"type": "string"}, "default": odd},
        {"name": "f1", "type": known},
    ]


@pytest.mark.parametrize("schema", ["{", '{"type": "nonsense"}', '{"type": "array"}'])
def test_what_is_no_schema_is_refused(schema: str) -> None:
    """A typed error, when the DataFrame is made."""
    with pytest.raises(ConfigurationError, match="Avro schema"):
        checked_schema(schema)


def test_a_schema_may_be_text() -> None:
    """As a registry or a file has it."""
    assert checked_schema(json.dumps(record("int"))) == record("int")
