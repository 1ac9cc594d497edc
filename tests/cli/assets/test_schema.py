"""The schema of the configuration file: the options that there are, and what they take."""

from __future__ import annotations

import json
import re
import tomllib
from datetime import datetime
from typing import Any

import pytest

from consumer_sdk.cli.assets.schema import config_schema
from consumer_sdk.cli.run.config import NAMES, parse_config
from tests.cli.groups.test_checkpoints import run
from tests.cli.test_help import PAGE

TYPES: dict[str, tuple[type, ...]] = {
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "object": (dict,),
    "array": (list,),
}


def takes(schema: dict[str, Any], value: Any) -> bool:
    """What a validator would say, of what this schema uses."""
    if (
        ("anyOf" in schema and not any(takes(each, value) for each in schema["anyOf"]))
        or ("enum" in schema and value not in schema["enum"])
        or schema.get("const", value) != value
    ):
        return False
    if isinstance(value, datetime):
        return "anyOf" in schema or schema.get("format") == "date-time"
    kinds = schema.get("type", list(TYPES))
    allowed = [TYPES[kind] for kind in ([kinds] if isinstance(kinds, str) else kinds)]
    if not any(isinstance(value, kind) for kind in allowed) or (
        isinstance(value, bool) and "boolean" not in kinds
    ):
        return False
    if isinstance(value, list) and "items" in schema:
        return all(takes(schema["items"], each) for each in value)
    if not isinstance(value, dict) or "type" not in schema:
        return True
    known, others = schema.get("properties", {}), schema["additionalProperties"]
    named = all(takes(known[name], value[name]) for name in known.keys() & value.keys())
    return named and all(
        isinstance(others, dict) and takes(others, value[name])
        for name in value.keys() - known.keys()
    )


def test_schema_has_all_options_and_says_what_each_does() -> None:
    """Those that a file may have, and no other."""
    tables = config_schema()["properties"]

    assert tables.keys() == NAMES[""]
    for name in ("consumer", "run", "admin", "telemetry"):
        assert tables[name]["properties"].keys() == NAMES[name]
    for name in ("consumer", "run"):
        for option, schema in tables[name]["properties"].items():
            assert schema.get("description"), option
            assert {"type", "enum", "anyOf"} & schema.keys(), option


def test_example_of_the_page_is_read_and_fits_the_schema() -> None:
    """So what people copy from it works, and editors do not complain."""
    (name,) = re.findall(r"```{literalinclude} (\S+\.toml)\n", PAGE.read_text(encoding="utf-8"))
    text = (PAGE.parent / name).read_text(encoding="utf-8")
    parse_config(text, "consumer.toml")
    assert takes(config_schema(), tomllib.loads(text))


@pytest.mark.parametrize(
    "text, is_taken",
    [
        ("consumer.max_holes = 'none'", True),
        ("consumer.max_holes = 'some'", False),
        ("consumer.start = 'earliest'", True),
        ("consumer.start = 2026-01-01T00:00:00Z", True),
        ("consumer.start = 3", False),
        ("consumer.trees = 1", False),
        ("consumer.retry = { max_attempts = 'none' }", True),
        ("consumer.retry = { max = 1 }", False),
        ("consumer.hooks = 1", False),
        ("run.ordering = 'keys'", False),
        ("runs.ordering = 'key'", False),
    ],
)
def test_mistakes_do_not_fit_the_schema(text: str, is_taken: bool) -> None:  # noqa: FBT001 - a parameter of the test
    """As they do not fit the program."""
    assert takes(config_schema(), tomllib.loads(text)) == is_taken


def test_command_writes_it() -> None:
    """As JSON."""
    done = run("schema", topic="assets")

    assert (done.returncode, json.loads(done.stdout)) == (0, config_schema())
