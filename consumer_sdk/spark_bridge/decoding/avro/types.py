"""The Spark type of an Avro schema, and logical types that fastavro must not convert.

The types are those of Spark's own decoder: a union with null is the other type, ``["int", "long"]`` is a long
and ``["float", "double"]`` a double, an enum a string. Every column may be null. Other unions have no Spark type, and recursive
records neither. Logical types that Spark does not know stay the numbers, texts and bytes that they are.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from consumer_sdk.errors import ConfigurationError

if TYPE_CHECKING:
    from pyspark.sql.types import DataType, StructType

__all__ = ["AvroSchema", "plain_schema", "read_schema", "spark_type"]

AvroSchema: TypeAlias = str | Mapping[str, Any] | Sequence[Any]
"""JSON text, or what it stands for."""

_NAMED = {"record", "error", "enum", "fixed"}
_SIMPLE = {
    "boolean": "boolean",
    "int": "int",
    "long": "bigint",
    "float": "float",
    "double": "double",
    "bytes": "binary",
    "fixed": "binary",
    "string": "string",
    "enum": "string",
}
_LOGICAL = {
    ("int", "date"): "date",
    ("long", "timestamp-millis"): "timestamp",
    ("long", "timestamp-micros"): "timestamp",
    ("long", "local-timestamp-millis"): "timestamp_ntz",
    ("long", "local-timestamp-micros"): "timestamp_ntz",
}
_WIDER = [({"int", "long"}, "bigint"), ({"float", "double"}, "double")]


def read_schema(schema: AvroSchema) -> Any:
    """The schema as Python values.

    Raises:
        ConfigurationError: the text is no JSON.
    """
    if not isinstance(schema, str):
        return schema
    if schema in _SIMPLE:
        return schema
    try:
        return json.loads(schema)
    except ValueError as error:
        raise ConfigurationError(f"the Avro schema is no JSON: {error}") from error


def plain_schema(schema: Any) -> Any:
    """The schema without the logical types that would become values that Spark does not know."""
    if isinstance(schema, Mapping):
        kept = {name: plain_schema(value) for name, value in schema.items() if name != "default"}
        defaults = {"default": schema["default"]} if "default" in schema else {}
        if "logicalType" in schema and not _is_known(schema):
            del kept["logicalType"]
        return kept | defaults
    if isinstance(schema, Sequence) and not isinstance(schema, str):
        return [plain_schema(each) for each in schema]
    return schema


def spark_type(schema: Any) -> StructType:
    """The Spark type of a record's values.

    Raises:
        ConfigurationError: it is no record, or has a part without a Spark type; names it.
    """
    from pyspark.sql.types import StructType as Struct

    found = _Types().of(schema, "")
    if not isinstance(found, Struct) or not found.fields:
        raise ConfigurationError("the Avro schema is no record with fields: columns need names")
    return found


class _Types:
    """Types by the names that one schema defines."""

    def __init__(self) -> None:
        self._named: dict[str, DataType | None] = {}

    def of(self, schema: Any, path: str) -> DataType:
        if isinstance(schema, str):
            return self._by_name(schema, path)
        if isinstance(schema, Mapping):
            return self._of_mapping(schema, path)
        return self._of_union(schema, path)

    def _by_name(self, name: str, path: str) -> DataType:
        if name in _SIMPLE:
            return _parsed(_SIMPLE[name])
        if name not in self._named:
            raise _no_type(path, f"the name {name!r} is not defined")
        known = self._named[name]
        if known is None:
            raise _no_type(path, f"the record {name!r} contains itself")
        return known

    def _of_mapping(self, schema: Mapping[str, Any], path: str) -> DataType:
        from pyspark.sql.types import ArrayType, MapType, StringType

        kind = schema.get("type")
        if kind in {"record", "error"}:
            return self._of_record(schema, path)
        if kind == "array":
            return ArrayType(self.of(schema.get("items"), f"{path}[]"))
        if kind == "map":
            return MapType(StringType(), self.of(schema.get("values"), f"{path}{{}}"))
        found = _logical(schema) or self.of(kind, path)
        if kind in _NAMED:
            self._define(schema, found)
        return found

    def _of_record(self, schema: Mapping[str, Any], path: str) -> DataType:
        from pyspark.sql.types import StructType as Struct

        self._define(schema, None)
        found = Struct()
        for field in schema.get("fields", ()):
            inner = f"{path}.{field['name']}".lstrip(".")
            found = found.add(field["name"], self.of(field["type"], inner))
        self._define(schema, found)
        return found

    def _define(self, schema: Mapping[str, Any], found: DataType | None) -> None:
        name, space = schema.get("name", ""), schema.get("namespace")
        self._named[name] = found
        if space and "." not in name:
            self._named[f"{space}.{name}"] = found
        self._named[name.rpartition(".")[2]] = found

    def _of_union(self, schema: Any, path: str) -> DataType:
        if not isinstance(schema, Sequence):
            raise _no_type(path, f"{schema!r} is no type")
        others = [each for each in schema if each != "null"]
        if len(others) == 1:
            return self.of(others[0], path)
        for names, wider in _WIDER:
            if others and all(isinstance(each, str) and each in names for each in others):
                return _parsed(wider)
        raise _no_type(path, f"a union of {len(others)} types has no column type")


def _logical(schema: Mapping[str, Any]) -> DataType | None:
    if not _is_known(schema):
        return None
    if schema["logicalType"] == "decimal":
        from pyspark.sql.types import DecimalType

        return DecimalType(schema["precision"], schema.get("scale", 0))
    return _parsed(_LOGICAL[schema["type"], schema["logicalType"]])


def _is_known(schema: Mapping[str, Any]) -> bool:
    name, kind = schema.get("logicalType"), schema.get("type")
    if name == "decimal":
        precision = schema.get("precision")
        return kind in {"bytes", "fixed"} and type(precision) is int and 0 < precision <= 38  # noqa: PLR2004 - Spark's most
    return isinstance(kind, str) and (kind, name) in _LOGICAL


def _parsed(name: str) -> DataType:
    from pyspark.sql import types as t

    kinds: dict[str, DataType] = {
        "boolean": t.BooleanType(),
        "int": t.IntegerType(),
        "bigint": t.LongType(),
        "float": t.FloatType(),
        "double": t.DoubleType(),
        "binary": t.BinaryType(),
        "string": t.StringType(),
        "date": t.DateType(),
        "timestamp": t.TimestampType(),
        "timestamp_ntz": t.TimestampNTZType(),
    }
    return kinds[name]


def _no_type(path: str, why: str) -> ConfigurationError:
    place = f"at {path}" if path else "at its top"
    return ConfigurationError(f"the Avro schema has no Spark type {place}: {why}")
