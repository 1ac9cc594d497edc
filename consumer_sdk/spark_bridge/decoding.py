"""JSON values with a schema: decoded, or rejected with a reason, and never null instead.

Spark's ``from_json`` decodes, in the JVM. On its own it is lenient where a pipeline must not be:

- What follows the JSON (``{"id": 1} and more``) is not looked at. So the text is decoded as the
  only element of an array, in a map with one more entry after it. A text that closes the array
  and opens others (``{"id": 1}], "x": [{"id": 2}``) makes more entries, or leaves the last one
  to another map: that one and the map itself have a random name, which no text can know.
- ``NOT NULL`` in the schema means nothing to it. Fields that are, at any depth, are looked at.
- Bytes that are no UTF-8 become U+FFFD; an empty text becomes null. Both are rejected.
- Quotes may be single, and numbers ``NaN``. Here not, unless ``options`` say so.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from typing import TYPE_CHECKING

from consumer_sdk.errors import ConfigurationError, MissingExtraError
from consumer_sdk.spark_bridge.decoding_required import missing_field

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import StructType

__all__ = ["add_outcome", "check_names", "from_json_value", "schema_of"]

_STRICT = {"allowSingleQuotes": "false", "allowNonNumericNumbers": "false"}
_CORRUPT = "corrupt"
_PARSED = "__consumer_sdk_parsed"


def from_json_value(
    rows: DataFrame,
    schema: StructType | str,
    *,
    value: str = "value",
    into: str = "decoded",
    reject_null: bool = False,
    options: Mapping[str, str] | None = None,
) -> DataFrame:
    """The rows with a column for the decoded value, and one, ``reason``, for why there is none.

    Exactly one of three holds for a row: it is decoded (``reason`` is null); it had no value, a
    tombstone (both are null); or it is rejected (``decoded`` is null): no UTF-8, malformed, of
    another type than the schema's, or without a field that the schema has as ``NOT NULL``. A
    ``string`` field takes any JSON as its text, as Spark's do. Works on batches and on streams,
    in the JVM; `consumer_sdk.spark_bridge.split_rejects` and `route_rejects` go on from here.

    Args:
        rows: with a column of bytes or text.
        schema: of the values: a ``StructType``, or DDL such as ``"id BIGINT NOT NULL, name STRING"``.
        value: the column to decode.
        into: the new column's name.
        reject_null: tombstones are rejected too.
        options: of Spark's JSON reader, such as ``{"timestampFormat": "…"}``.

    Raises:
        ConfigurationError: a column is missing or exists already, or the schema is none.
        MissingExtraError: pyspark is not installed.
    """
    wanted = schema_of(schema)
    check_names(rows, value, into)
    from pyspark.sql import functions as f

    text = f.col(value).cast("string")
    # A column of its own first: used in several places below, it would be decoded as often.
    name = secrets.token_hex(8)
    parsed = rows.withColumn(_PARSED, _parse(text, name, wanted, {**_STRICT, **(options or {})}))
    root = f.col(_PARSED)[name]["json"][0]
    reason = (
        f.when(~f.is_valid_utf8(text), "the value is no UTF-8")
        .when(_is_corrupt(name) | root.isNull(), _misfit(wanted))
        .otherwise(missing_field(root, wanted))
    )
    found = add_outcome(parsed, value, into, root, reason, reject_null=reject_null)
    return found.drop(_PARSED)


def add_outcome(
    rows: DataFrame,
    value: str,
    into: str,
    decoded: Column,
    reason: Column,
    *,
    reject_null: bool,
) -> DataFrame:
    """The columns ``into`` and ``reason``; both are null for a value that is null."""
    from pyspark.sql import functions as f

    is_null = f.col(value).isNull()
    why_null = f.lit("there is no value" if reject_null else None).cast("string")
    with_reason = rows.withColumn("reason", f.when(is_null, why_null).otherwise(reason))
    return with_reason.withColumn(into, f.when(f.col("reason").isNull() & ~is_null, decoded))


def schema_of(schema: StructType | str) -> StructType:
    """The schema of a value.

    Raises:
        ConfigurationError: it is no schema of columns, or has none.
        MissingExtraError: pyspark is not installed.
    """
    try:
        from pyspark.errors import PySparkException
        from pyspark.sql.types import StructType as Struct
    except ModuleNotFoundError as error:
        raise MissingExtraError("pyspark", "spark") from error
    try:
        found = Struct.fromDDL(schema) if isinstance(schema, str) else schema
    except PySparkException as error:
        raise ConfigurationError(f"schema={schema!r} is no DDL of columns: {error}") from error
    if not isinstance(found, Struct) or not found.fields:
        raise ConfigurationError(f"schema={schema!r}: give a StructType, or DDL of columns")
    return found


def check_names(rows: DataFrame, value: str, into: str) -> None:
    """Sees that the value's column is there, and that the new ones are not.

    Raises:
        ConfigurationError: it is not so.
    """
    # Spark takes names that differ in case only for the same.
    types = {field.name.lower(): field.dataType.simpleString() for field in rows.schema}
    if types.get(value.lower()) not in {"binary", "string"}:
        raise ConfigurationError(
            f"value={value!r}: name a column of bytes or text (there are {', '.join(rows.columns)})"
        )
    if into.lower() == "reason":
        raise ConfigurationError(f"into={into!r}: that column says why a value is rejected")
    for name in {into.lower(), "reason"} & types.keys():
        raise ConfigurationError(f"there is a column {name!r} already: rename it, or give into=…")


def _parse(text: Column, name: str, schema: StructType, options: dict[str, str]) -> Column:
    from pyspark.sql import functions as f
    from pyspark.sql.types import ArrayType, MapType, StringType
    from pyspark.sql.types import StructType as Struct

    outer = Struct().add(name, MapType(StringType(), ArrayType(schema)))
    wrapped = f.concat(f.lit(f'{{"{name}":{{"json":['), text, f.lit(f'],"{name}":[]}}}}'))
    corrupt = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": _CORRUPT}
    return f.from_json(wrapped, outer.add(_CORRUPT, StringType()), {**options, **corrupt})


def _is_corrupt(name: str) -> Column:
    from pyspark.sql import functions as f

    parsed = f.col(_PARSED)
    parts = parsed[name]
    is_whole = (f.size(parts) == 2) & (f.size(parts[name]) == 0)  # noqa: PLR2004 - the text's and the last one
    is_alone = is_whole & (f.size(parts["json"]) == 1)
    return parsed[_CORRUPT].isNotNull() | ~f.coalesce(is_alone, f.lit(False))


def _misfit(schema: StructType) -> str:
    names = ", ".join(schema.fieldNames()[:8])
    # Where a parser stopped does not say whether the text or the schema is the wrong one.
    return f"the value is malformed JSON or does not fit the schema ({names}{', …' if len(schema) > 8 else ''})"  # noqa: PLR2004
