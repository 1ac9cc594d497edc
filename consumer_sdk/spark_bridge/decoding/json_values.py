"""JSON values with a schema: decoded, or rejected with a reason, and never null instead.

Spark's ``from_json`` decodes, in the JVM. On its own it is lenient where a pipeline must not be:

- It ignores text after the JSON (``{"id": 1} and more``). So the text is decoded as the
  only element of an array, in a map with one more entry after it. A text that closes the array
  and opens others (``{"id": 1}], "x": [{"id": 2}``) makes more entries, or leaves the last one
  to another map: that one and the map itself have a random name, which no text can know.
- It ignores ``NOT NULL`` in the schema. Here such fields are checked at any depth.
- Bytes that are no UTF-8 become U+FFFD; an empty text becomes null. Both are rejected.
- It accepts single quotes and the number ``NaN``. Here both are rejected, unless ``options`` allow
  them.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import reduce
from operator import or_
from typing import TYPE_CHECKING, TypeAlias

from consumer_sdk.errors import ConfigurationError
from consumer_sdk.spark_bridge.decoding.outcomes import add_outcome, check_names
from consumer_sdk.spark_bridge.decoding.rescued import check_rescued, rescue_in_workers
from consumer_sdk.spark_bridge.pyspark_version import require_pyspark

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import DataType, StructType

__all__ = ["from_json_value", "schema_of"]

_STRICT = {"allowSingleQuotes": "false", "allowNonNumericNumbers": "false"}
_CORRUPT = "corrupt"
_PARSED = "__consumer_sdk_parsed"
_RESCUED = "__consumer_sdk_rescued"
_HEAD = 5
_NO_HEAD = "the value does not begin with a zero and a schema's number"

Rule: TypeAlias = "tuple[str, Callable[[Column], Column]]"
"""The path of what must be there, and whether it is missing in a given value."""


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
    """Adds a column for the decoded value, and a column ``reason``, which says why there is none.

    A row is one of these:

    - decoded: ``reason`` is null;
    - a tombstone, which has no value: both columns are null;
    - rejected: ``decoded`` is null. The value is no UTF-8, is malformed, has another type than the
      schema, or lacks a field that is ``NOT NULL`` in the schema.

    A ``string`` field takes any JSON as its text, as in Spark. It works on batches and on streams,
    in the JVM. `consumer_sdk.spark_bridge.split_rejects` and `route_rejects` process the rejected
    rows.

    Args:
        rows: with a column of bytes or text.
        schema: of the values: a ``StructType``, or DDL such as ``"id BIGINT NOT NULL, name STRING"``.
        value: the column to decode.
        into: the new column's name.
        reject_null: tombstones are rejected too.
        options: of Spark's JSON reader, such as ``{"timestampFormat": "…"}``.
        rescued: the name of a column for data that does not fit the schema, as JSON text: fields
            that the schema does not have, and values of another type, whose columns are null. Such
            a row is not rejected, unless a ``NOT NULL`` field is missing. If a part of an array or
            a map does not fit, the column has all of it. It is null if everything fits. Spark's
            Python workers write it.
        has_head: the values begin with a zero byte and a schema id of a schema registry. They are
            skipped, and no registry is asked. A value without them is rejected.

    Raises:
        ConfigurationError: a column is missing or exists already, or the schema is invalid.
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
        .otherwise(f.coalesce(why_not_rescued, _missing_field(root, wanted)))
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


# -- fields that must not be null ----------------------------------------------------------


def _missing_field(struct: Column, schema: StructType) -> Column:
    """Why a struct that is not null is incomplete: the first such field, or null.

    An element of an array is ``items[]``, a value of a map ``prices{}``.
    """
    from pyspark.sql import functions as f

    cases = [
        f.when(is_missing(struct), f"the field {path} is missing or null")
        for path, is_missing in _fields(schema, "")
    ]
    return f.coalesce(*cases, f.lit(None).cast("string"))


def _fields(schema: StructType, path: str) -> Iterator[Rule]:
    for field in schema.fields:
        for inner, is_missing in _rules(field.dataType, path + field.name, field.nullable):
            yield inner, _in_field(field.name, is_missing)


def _rules(kind: DataType, path: str, may_be_null: bool) -> Iterator[Rule]:  # noqa: FBT001 - a schema's
    from pyspark.sql import functions as f
    from pyspark.sql.types import ArrayType, MapType
    from pyspark.sql.types import StructType as Struct

    if not may_be_null:
        yield path, lambda value: value.isNull()
    if isinstance(kind, Struct):
        yield from _fields(kind, f"{path}.")
    elif isinstance(kind, ArrayType):
        inner = list(_rules(kind.elementType, f"{path}[]", kind.containsNull))
        yield from _in_some(inner, lambda value: value)
    elif isinstance(kind, MapType):
        inner = list(_rules(kind.valueType, f"{path}{{}}", kind.valueContainsNull))
        yield from _in_some(inner, f.map_values)


def _in_field(name: str, is_missing: Callable[[Column], Column]) -> Callable[[Column], Column]:
    """What an optional struct lacks counts only where the struct is."""
    return lambda struct: struct.isNotNull() & is_missing(struct.getField(name))


def _in_some(rules: Sequence[Rule], items: Callable[[Column], Column]) -> Iterator[Rule]:
    """All of an element's rules as one, since an element has no path of its own."""
    from pyspark.sql import functions as f

    if rules:
        yield (
            " or ".join(path for path, _ in rules),
            lambda value: f.exists(
                items(value), lambda item: reduce(or_, [test(item) for _, test in rules])
            ),
        )
