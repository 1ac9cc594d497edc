"""A column for the parts of a JSON value that its row lacks, as JSON text.

Spark decides what fits a column. Its Python workers look at which columns it left null, and write the
rest of the text out; that part, `rescue`, needs no Spark. Numbers keep their digits: ``1.0`` does not fit an INT, and stays ``1.0``.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from itertools import pairwise
from typing import TYPE_CHECKING, Any, final

from consumer_sdk.errors import ConfigurationError
from consumer_sdk.spark_bridge.decoding.in_workers import arrow_function

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import StructType

__all__ = ["check_rescued", "rescue", "rescue_in_workers"]


def check_rescued(rows: DataFrame, schema: StructType, rescued: str, into: str) -> None:
    """Sees that the column can be added.

    Raises:
        ConfigurationError: its name is taken, or the schema has a VARIANT, whose parts have no columns.
    """
    taken = {name.lower() for name in (*rows.columns, into, "reason")}
    if rescued.lower() in taken or not rescued:
        raise ConfigurationError(f"rescued={rescued!r}: there is such a column already")
    if "variant" in schema.simpleString():
        raise ConfigurationError("rescued=: a schema with a VARIANT has room for all values")


def rescue_in_workers(text: Column, decoded: Column) -> Column:
    """A struct of the rest as ``value``, and of a ``reason`` why there is none."""
    call = arrow_function(lambda texts, rows: rescue(texts, rows), "value STRING, reason STRING")
    found: Column = call(text, decoded)
    return found


# -- in a worker ---------------------------------------------------------------------------


@final
class _Number(str):
    """As it was written."""

    __slots__ = ()


@final
class _Entries(dict[str, Any]):
    """What a map has, in contrast to a struct: each key is one that the schema allows."""


_NOTHING = object()


def rescue(texts: pa.Array, decoded: pa.Array) -> pa.Array:
    """Pairs of the rest, null where there is none, and of a reason why that cannot be told.

    Args:
        texts: the values; a null is a value that nothing is asked about.
        decoded: the structs that Spark made of them, with nulls for what does not fit.
    """
    import pyarrow as pa

    pairs = [
        _outcome(text, has) for text, has in zip(texts.to_pylist(), _present(decoded), strict=True)
    ]
    rests = pa.array([rest for rest, _ in pairs], pa.string())
    reasons = pa.array([reason for _, reason in pairs], pa.string())
    return pa.StructArray.from_arrays([rests, reasons], names=["value", "reason"])


def _outcome(text: str | None, has: Any) -> tuple[str | None, str | None]:
    if text is None or has is None:
        return None, None
    try:
        value = json.loads(
            text, parse_int=_Number, parse_float=_Number, parse_constant=_no_constant
        )
        rest = _rest(value, has)
        return None if rest is _NOTHING else _written(rest), None
    except (ValueError, RecursionError) as error:
        return None, f"what does not fit the schema cannot be told: {error}"[:500]


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is no JSON")


def _rest(value: Any, has: Any) -> Any:
    """What of a value is in no column."""
    if value is None or has is True:
        return _NOTHING
    if not has and has not in ([], {}):
        return value
    if isinstance(has, _Entries) and isinstance(value, dict):
        is_whole = all(_rest(each, has.get(name)) is _NOTHING for name, each in value.items())
        return _NOTHING if is_whole else value
    if isinstance(has, list) and isinstance(value, list):
        is_whole = all(_rest(*pair) is _NOTHING for pair in zip(value, has, strict=True))
        return _NOTHING if is_whole else value
    return _rest_of_struct(value, has) if isinstance(value, dict) else value


def _rest_of_struct(value: Mapping[str, Any], has: Mapping[str, Any]) -> Any:
    found = {
        name: rest
        for name, each in value.items()
        if (rest := _rest(each, has[name]) if name in has else each) is not _NOTHING
    }
    return found or _NOTHING


def _written(value: Any) -> str:
    if isinstance(value, _Number):
        return str(value)
    if isinstance(value, dict):
        return "{" + ",".join(f"{_text(k)}:{_written(v)}" for k, v in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(_written, value)) + "]"
    return _text(value)


def _text(value: Any) -> str:
    # Half of a surrogate pair, which JSON may have, is no UTF-8: such texts stay escaped.
    is_plain = not isinstance(value, str) or value.isprintable()
    return json.dumps(value, ensure_ascii=not is_plain)


# -- what Spark decoded ---------------------------------------------------------------------


def _present(column: pa.Array) -> list[Any]:
    """For each value: None, if it is null, True, or the same of its parts.

    No value is made a Python object: there are times that Python cannot hold.
    """
    import pyarrow as pa

    kind, is_there = column.type, column.is_valid().to_pylist()
    if pa.types.is_struct(kind):
        names = [field.name for field in kind]
        parts = zip(*map(_present, column.flatten()), strict=True)
        found: Any = (dict(zip(names, each, strict=True)) for each in parts)
    elif pa.types.is_map(kind):
        keys = column.keys.to_pylist()
        entries = list(zip(keys, _present(column.items), strict=True))
        found = (_Entries(each) for each in _cut(entries, column))
    elif pa.types.is_list(kind) or pa.types.is_large_list(kind):
        found = _cut(_present(column.values), column)
    else:
        return [each or None for each in is_there]
    return [each if there else None for each, there in zip(found, is_there, strict=True)]


def _cut(values: list[Any], column: pa.Array) -> list[list[Any]]:
    """The items of each row."""
    return [values[begin:end] for begin, end in pairwise(column.offsets.to_pylist())]
