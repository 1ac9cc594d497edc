"""Which field that must not be null is: an expression for Spark, made from a schema."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import reduce
from operator import or_
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from pyspark.sql import Column
    from pyspark.sql.types import DataType, StructType

__all__ = ["missing_field"]

Rule: TypeAlias = "tuple[str, Callable[[Column], Column]]"
"""The path of what must be there, and whether it is missing in a given value."""


def missing_field(struct: Column, schema: StructType) -> Column:
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
