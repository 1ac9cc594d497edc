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

from consumer_sdk.errors import ConfigurationError
from consumer_sdk.spark_bridge.decoding.outcomes import add_outcome, check_names
from consumer_sdk.spark_bridge.decoding.required import missing_field
from consumer_sdk.spark_bridge.decoding.rescue_in_workers import check_rescued, rescue_in_workers
from consumer_sdk.spark_bridge.pyspark_version import require_pyspark

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import StructType

__all__ = ["from_json_value", "schema_of"]

_STRICT = {"allowSingleQuotes": "false", "allowNonNumericNumbers": "false"}
_CORRUPT = "corrupt"
_PARSED = "__consumer_sdk_parsed"
_RESCUED = "__consumer_sdk_rescued"
_HEAD = 5
_NO_HEAD = "the value does not begin with a zero and a schema's number"


def from_json_value(
    rows: DataFrame,
    schema: StructType | str,
    *,
    value: str = "value",
    into: str = "decoded",
    reject_null: bool = False,
    options: Mapping[str, str] | None = None,
    rescued: str | None = None,
    has_head: bool = False,
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
        rescued: the name of a column for what does not fit the schema, as JSON text: fields that it does
            not have, and values of another type, whose columns are null. Such a value is not
            rejected then, unless a ``NOT NULL`` field is missing. An array or a map of which a part does not fit
            is there as a whole. Null where all fits. Done in Spark's Python workers.
        has_head: the values begin with a zero and the number of a schema in a schema registry, which are left
            out; no registry is asked. A value without is rejected.

    Raises:
        ConfigurationError: a column is missing or exists already, or the schema is none.
        MissingExtraError: pyspark is not installed, or older than 4.0.
    """
    wanted = schema_of(schema)
    check_names(rows, value, into)
    if rescued is not None:
        check_rescued(rows, wanted, rescued, into)
    from pyspark.sql import functions as f

    text = _text(value, has_head=has_head)
    # A column of its own first: used in several places below, it would be decoded as often.
    name = secrets.token_hex(8)
    parsed = rows.withColumn(_PARSED, _parse(text, name, wanted, {**_STRICT, **(options or {})}))
    root = f.col(_PARSED)[name]["json"][0]
    is_bad = ~_is_alone(name) | root.isNull()
    if rescued is None:
        is_bad = f.col(_PARSED)[_CORRUPT].isNotNull() | is_bad
        why_not_rescued = f.lit(None)
    else:
        parsed = parsed.withColumn(_RESCUED, rescue_in_workers(text, f.when(~is_bad, root)))
        why_not_rescued = f.col(_RESCUED)["reason"]
    reason = (
        f.when(~_begins_well(value, has_head=has_head), _NO_HEAD)
        .when(~f.is_valid_utf8(text), "the value is no UTF-8")
        .when(is_bad, _misfit(wanted))
        .otherwise(f.coalesce(why_not_rescued, missing_field(root, wanted)))
    )
    found = add_outcome(parsed, value, into, root, reason, reject_null=reject_null)
    if rescued is not None:
        is_there = f.col(into).isNotNull()
        found = found.withColumn(rescued, f.when(is_there, f.col(_RESCUED)["value"]))
    return found.drop(_PARSED, _RESCUED)


def schema_of(schema: StructType | str) -> StructType:
    """The schema of a value.

    Raises:
        ConfigurationError: it is no schema of columns, or has none.
        MissingExtraError: pyspark is not installed, or older than 4.0.
    """
    require_pyspark()
    from pyspark.errors import PySparkException
    from pyspark.sql.types import StructType as Struct

    try:
        found = Struct.fromDDL(schema) if isinstance(schema, str) else schema
    except PySparkException as error:
        raise ConfigurationError(f"schema={schema!r} is no DDL of columns: {error}") from error
    if not isinstance(found, Struct) or not found.fields:
        raise ConfigurationError(f"schema={schema!r}: give a StructType, or DDL of columns")
    return found


def _parse(text: Column, name: str, schema: StructType, options: dict[str, str]) -> Column:
    from pyspark.sql import functions as f
    from pyspark.sql.types import ArrayType, MapType, StringType
    from pyspark.sql.types import StructType as Struct

    outer = Struct().add(name, MapType(StringType(), ArrayType(schema)))
    wrapped = f.concat(f.lit(f'{{"{name}":{{"json":['), text, f.lit(f'],"{name}":[]}}}}'))
    corrupt = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": _CORRUPT}
    return f.from_json(wrapped, outer.add(_CORRUPT, StringType()), {**options, **corrupt})


def _is_alone(name: str) -> Column:
    from pyspark.sql import functions as f

    parts = f.col(_PARSED)[name]
    is_whole = (f.size(parts) == 2) & (f.size(parts[name]) == 0)  # noqa: PLR2004 - the text's and the last one
    return f.coalesce(is_whole & (f.size(parts["json"]) == 1), f.lit(False))


def _text(value: str, *, has_head: bool) -> Column:
    from pyspark.sql import functions as f

    data = f.col(value)
    return (f.substring(data.cast("binary"), _HEAD + 1, 2**31 - 1) if has_head else data).cast(
        "string"
    )


def _begins_well(value: str, *, has_head: bool) -> Column:
    from pyspark.sql import functions as f

    data = f.col(value).cast("binary")
    is_headed = (f.octet_length(data) >= _HEAD) & (f.substring(data, 1, 1) == f.lit(b"\0"))
    return is_headed if has_head else f.lit(True)


def _misfit(schema: StructType) -> str:
    names = ", ".join(schema.fieldNames()[:8])
    # Where a parser stopped does not say whether the text or the schema is the wrong one.
    return f"the value is malformed JSON or does not fit the schema ({names}{', …' if len(schema) > 8 else ''})"  # noqa: PLR2004
