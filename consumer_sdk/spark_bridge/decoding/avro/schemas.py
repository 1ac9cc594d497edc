"""Makes Avro schemas safe for fastavro, if the bytes come from untrusted producers. Without Spark.

fastavro is lenient in two ways that a value can abuse. It takes the enum index -1 for the last
symbol, as Python's lists do. And it believes the count of an array whose items take no bytes, so
ten bytes become an endless array.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from typing import Any

import fastavro
from fastavro import _read_py

from consumer_sdk.errors import ConfigurationError

__all__ = ["WriterSchema", "parse"]


class _Symbols(dict[int, str]):
    """Symbols by their numbers; contains symbols, as the list does that it stands for."""

    def __contains__(self, symbol: object) -> bool:
        return symbol in self.values()


def parse(schema: Any) -> Any:
    """The schema for fastavro, strict.

    Args:
        schema: as Python values.

    Raises:
        ConfigurationError: an array's items take no bytes.
        Exception: fastavro's, if it is no Avro schema.
    """
    named: dict[str, Any] = {}
    parsed = fastavro.parse_schema(schema, named_schemas=named)
    for part in [*_parts(parsed), *_parts(list(named.values()))]:
        _harden(part, named)
    return parsed


@dataclass(frozen=True, slots=True)
class WriterSchema:
    """A schema for fastavro, and its function that reads a value of it.

    The compiled function overruns the thread's stack on a value that is nested some thousands
    deep, which ends the process; fastavro's other one goes as deep as Python allows.
    """

    schema: Any
    read: Callable[..., Any]

    @classmethod
    def of(cls, schema: Any) -> WriterSchema:
        """Of a schema as `parse` takes it."""
        parsed = parse(schema)
        module = _read_py if _is_recursive(parsed) else fastavro
        return cls(parsed, module.schemaless_reader)


def _is_recursive(parsed: Any) -> bool:
    """Whether a value may be nested without end.

    Args:
        parsed: what `parse` returned.
    """
    named = {part["name"]: part for part in _parts(parsed) if part.get("type") == "record"}
    used = {name: {each for each in _used(part) if each in named} for name, part in named.items()}
    try:
        TopologicalSorter(used).prepare()
    except CycleError:
        return True
    return False


def _used(part: Any) -> Iterator[str]:
    """The names of types that a type has in it."""
    if isinstance(part, str):
        yield part
    elif isinstance(part, list):
        for inner in part:
            yield from _used(inner)
    elif isinstance(part, dict):
        for key in ("type", "items", "values", "fields"):
            yield from _used(part.get(key))


def _parts(schema: Any) -> Iterator[dict[str, Any]]:
    """Every part that is a mapping."""
    if isinstance(schema, dict):
        yield schema
        for inner in schema.values():
            yield from _parts(inner)
    elif isinstance(schema, list):
        for inner in schema:
            yield from _parts(inner)


def _harden(part: dict[str, Any], named: Mapping[str, Any]) -> None:
    kind = part.get("type")
    if kind == "enum" and not isinstance(part["symbols"], _Symbols):
        part["symbols"] = _Symbols(enumerate(part["symbols"]))
    if kind == "array" and _is_empty(part["items"], named):
        raise ConfigurationError(
            f"the Avro schema has an array of {part['items']!r}, which take no bytes: a value of "
            "a few bytes could have any number of them"
        )


def _is_empty(schema: Any, named: Mapping[str, Any]) -> bool:
    """Values of the schema take no bytes."""
    if isinstance(schema, str):
        others = {name: each for name, each in named.items() if name != schema}
        return _is_empty(named[schema], others) if schema in named else schema == "null"
    if not isinstance(schema, dict):
        return False  # a union says which
    kind = schema.get("type")
    if kind in {"record", "error"}:
        return all(_is_empty(field["type"], named) for field in schema["fields"])
    if kind == "fixed":
        return bool(schema["size"] == 0)
    return kind not in {"array", "map", "enum"} and _is_empty(kind, named)
