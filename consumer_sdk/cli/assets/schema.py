"""A JSON schema of the configuration file, for editors: made of the annotations that Python has."""

from __future__ import annotations

import inspect
import re
import types
import typing
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Literal, TypeAlias

from consumer_sdk.cli.run.config import NAMES, TELEMETRY
from consumer_sdk.records import AtTime
from consumer_sdk.runtime import Consumer
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
    consumer = _options(Consumer.__init__, Consumer, NAMES["consumer"])
    consumer["url"] = TEXT | {"description": "kafka://host:9092/orders?group=billing"}
    consumer["client"] = TABLE | {"description": "Whatever may stand behind ? in the URL."}
    del consumer["dead_letters"]["type"]
    consumer["dead_letters"]["anyOf"] = [TEXT, TABLE | {"required": ["url"]}]
    consumer["decode"] |= TEXT
    run = _options(Consumer.run, Consumer.run, NAMES["run"])
    run["workers"] = {"type": "integer", "minimum": 1, "description": "Processes of one group."}
    run["uvloop"] = {"type": "boolean", "description": "Use uvloop's event loop."}
    return {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "title": "consumer-sdk run --config",
        **_table(
            {
                "app": TEXT | {"description": "module:name of what runs."},
                "handler": TEXT | {"description": "module:name of a Consumer's handler."},
                "consumer": _table(consumer),
                "run": _table(run),
                "admin": _table(
                    {
                        "listen": TEXT | {"description": "auto, unix:/path or 127.0.0.1:9464"},
                        "token": TEXT | {"description": "For whoever asks."},
                        "view": {"type": "boolean", "description": "The page, and its stream."},
                        "actions": {"type": "boolean", "description": "Pause, resume, flush."},
                        "hosts": {
                            "type": "array",
                            "items": TEXT,
                            "description": "Names that a browser may ask it by.",
                        },
                        "max_viewers": {"type": "integer", "minimum": 1},
                    }
                ),
                "telemetry": _table({name: {"enum": [*each]} for name, each in TELEMETRY.items()}),
            }
        ),
    }


def _table(properties: Mapping[str, Schema]) -> Schema:
    return {"type": "object", "additionalProperties": False, "properties": dict(properties)}


def _options(
    function: Callable[..., Any], documented: object, names: Iterable[str]
) -> dict[str, Schema]:
    """The options of a function that a file may have, by its annotations and a docstring."""
    hints, texts = typing.get_type_hints(function), _descriptions(documented)
    return {
        name: _schema(name, hints[name]) | {"description": texts[name]}
        for name in sorted(names)
        if name in hints
    }


def _schema(name: str, hint: Any) -> Schema:
    """Of an annotation; what no text can be is left out of it."""
    kinds = [kind for part in _parts(hint) if (kind := _kind(part))]
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
        return _table(_options(RetryPolicy, RetryPolicy, typing.get_type_hints(RetryPolicy)))
    return None


def _descriptions(documented: object) -> dict[str, str]:
    """The ``Args:`` of a docstring, each in one line, without its markup."""
    _, _, rest = (inspect.getdoc(documented) or "").partition("Args:\n")
    section = rest.partition("\n\n")[0]
    found = re.findall(r"^    ([\w, ]+): (.*(?:\n {8,}.*)*)", section, re.MULTILINE)
    return {
        name: re.sub(r"\s+", " ", text).replace("`", "")
        for names, text in found
        for name in names.split(", ")
    }
