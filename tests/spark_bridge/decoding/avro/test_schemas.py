"""Bytes that use what fastavro is lenient about. Without Spark."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from consumer_sdk.errors import ConfigurationError
from consumer_sdk.spark_bridge.decoding.avro.values import AvroDecoder, checked_schema

ENUM = {"type": "enum", "name": "E", "symbols": ["A", "B"]}


def record(*types: Any) -> dict[str, Any]:
    """A record with a field for each type."""
    fields = [{"name": f"f{at}", "type": each} for at, each in enumerate(types)]
    return {"type": "record", "name": "R", "fields": fields}


@pytest.mark.parametrize("head", [b"", b"\0\0\0\0\7"], ids=["own schema", "with a head"])
def test_an_enum_has_no_symbols_before_its_first(head: bytes) -> None:
    """The number -1 is rejected, also by name and where a reader's schema is applied."""
    schema = checked_schema(record(ENUM, "E"))
    kind = pa.struct([("f0", pa.string()), ("f1", pa.string())])
    decoder = AvroDecoder(schema, {7: record(ENUM, "E")} if head else None, kind)
    values = [b"\x00\x02", b"\x01\x00", b"\x00\x03", b"\x04\x00"]
    found = decoder.decode(pa.array([head + each for each in values])).to_pylist()
    assert found[0] == {"value": {"f0": "A", "f1": "B"}, "reason": None}
    assert [each["value"] for each in found[1:]] == [None] * 3
    assert all("no Avro of the schema" in each["reason"] for each in found[1:])


@pytest.mark.parametrize(
    "kind",
    [
        pytest.param("null", id="null"),
        pytest.param({"type": "fixed", "name": "F", "size": 0}, id="fixed"),
        pytest.param({"type": "record", "name": "N", "fields": []}, id="record"),
        pytest.param(
            {"type": "record", "name": "N", "fields": [{"name": "x", "type": "null"}]},
            id="record of nothing",
        ),
    ],
)
def test_items_that_take_no_bytes_are_refused(kind: Any) -> None:
    """Ten bytes would become 2**60 of them; refused in the schema, also by name."""
    with pytest.raises(ConfigurationError, match="take no bytes"):
        checked_schema(record({"type": "array", "items": kind}))
    if isinstance(kind, dict):
        with pytest.raises(ConfigurationError, match="take no bytes"):
            checked_schema(record(kind, {"type": "array", "items": kind["name"]}))


@pytest.mark.parametrize(
    "items", ["int", ["null", "int"], {"type": "array", "items": "int"}, ENUM, "R"]
)
def test_other_items_are_not_refused(items: Any) -> None:
    """Each takes a byte at least, so that the value's length bounds them."""
    schema = record({"type": "array", "items": items})
    assert checked_schema(schema) == schema


def chain(length: int) -> bytes:
    """A value of a linked list, without its head."""
    return b"\x02\x02" * (length - 1) + b"\x02\x00"


@pytest.mark.parametrize("is_union", [False, True])
def test_value_that_is_nested_deeply_is_rejected(is_union: bool) -> None:  # noqa: FBT001
    """20 kB of a writer's recursive schema ended the process; the reader wants none of it."""
    links = {"name": "next", "type": ["null", "R"]}
    writer = record("int") | {"fields": [{"name": "f0", "type": "int"}, links]}
    head = b"\0\0\0\0\7" + (b"\x02" if is_union else b"")
    decoder = AvroDecoder(
        checked_schema(record("int")),
        {7: ["null", writer] if is_union else writer},
        pa.struct([("f0", pa.int32())]),
    )
    values = [head + chain(10), head + chain(100_000), head + chain(3)]
    found = decoder.decode(pa.array(values)).to_pylist()
    assert [each["reason"] for each in found] == [None, "the value is nested too deeply", None]
    assert found[0]["value"] == {"f0": 1}
