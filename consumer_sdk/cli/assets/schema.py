"""A JSON schema of the configuration file, for editors: made of the options that Python has."""

from __future__ import annotations

import types
import typing
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, TypeAlias

from consumer_sdk.cli.run.config import NAMES, OWN
from consumer_sdk.options import ANYTHING, OptionType, help_of, kinds_of
from consumer_sdk.records import AtTime
from consumer_sdk.runtime import Consumer
from consumer_sdk.runtime.options import Options, RunOptions
from consumer_sdk.trackers import RetryPolicy

__all__ = ["config_schema"]

Schema: TypeAlias = dict[str, Any]

SIMPLE: Mapping[Any, str] = {bool: "boolean", int: "integer", float: "number", str: "string"}
NONE: Schema = {"const": "none"}
NONES = frozenset({"max_holes", "max_attempts"})
"""Options that may be `NONE`: without it they are not None."""
TEXT: Schema = {"type": "string"}
TABLE: Schema = {
    "type": "object",
    "additionalProperties": {"type": ["string", "number", "boolean"]},
}


def config_schema() -> Schema:
    """The schema, as JSON has it."""
    tables = {
        table: _options(options, options, kinds_of(options)) for table, options in OWN.items()
    }
    consumer = _options(Consumer.__init__, Consumer, kinds_of(Options), NAMES["consumer"])
    consumer["url"] = TEXT | {"description": "kafka://host:9092/orders?group=billing"}
    consumer["client"] = TABLE | {"description": "whatever may stand behind ? in the URL."}
    del consumer["dead_letters"]["type"]
    consumer["dead_letters"]["anyOf"] = [TEXT, TABLE | {"required": ["url"]}]
    consumer["decode"] |= TEXT
    tables["run"] |= _options(Consumer.run, Consumer.run, kinds_of(RunOptions), NAMES["run"])
    service = tables.pop("") | {name: _table(each) for name, each in tables.items()}
    return {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "title": "consumer-sdk run --config",
        **_table(service | {"consumer": _table(consumer)}),
    }


def _table(properties: Mapping[str, Schema]) -> Schema:
    return {"type": "object", "additionalProperties": False, "properties": dict(properties)}


def _options(
    annotated: Any,
    documented: object,
    kinds: Mapping[str, OptionType],
    names: Iterable[str] | None = None,
) -> dict[str, Schema]:
    """The options that a file may have, by annotations, bounds and a docstring.

    Args:
        names: which of them; None: all.
    """
    hints, texts = typing.get_type_hints(annotated), help_of(documented)
    return {
        name: _schema(name, hints[name], kinds.get(name, ANYTHING).least)
        | {"description": texts[name].replace("`", "")}
        for name in sorted(hints.keys() if names is None else hints.keys() & set(names))
    }


def _schema(name: str, hint: Any, least: int | None) -> Schema:
    """Of an annotation; what no text can be is left out of it."""
    kinds = [kind for part in _parts(hint) if (kind := _kind(part))]
    for kind in kinds:
        if least is not None and kind.get("type") in {"integer", "number"}:
            kind["minimum"] = least
    if name in NONES:
        kinds.append(NONE)
    return dict(kinds[0]) if len(kinds) == 1 else {"anyOf": kinds} if kinds else {}


def _parts(hint: Any) -> Iterable[Any]:
    is_union = typing.get_origin(hint) in {typing.Union, types.UnionType}
    return typing.get_args(hint) if is_union else [hint]


def _kind(part: Any) -> Schema | None:
    if part in SIMPLE:
        return {"type": SIMPLE[part]}
    if typing.get_origin(part) is Literal:
        return {"enum": list(typing.get_args(part))}
    if part is AtTime:
        return {"type": "string", "format": "date-time"}
    if part is RetryPolicy:
        return _table(_options(RetryPolicy, RetryPolicy, kinds_of(RetryPolicy)))
    if typing.get_origin(part) is Sequence:
        return {"type": "array", "items": TEXT}
    return None
