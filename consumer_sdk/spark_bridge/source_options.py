"""The options of ``format("consumer_sdk")``, by whichever way Spark hands them over.

``.option()`` and ``.options()`` give them as they are; ``.load(url)`` as ``path``. ``CREATE TABLE …
USING consumer_sdk OPTIONS (…)`` mixes them with the table's properties (``provider``, ``owner``,
``comment``), and gives none of them to the reader of a ``SELECT``: only the table's columns. So a
table has its options in the metadata of its first column.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from pyspark.sql.types import StructType

from consumer_sdk.errors import ConfigurationError

__all__ = ["is_table", "source_options", "stored_options", "with_options"]

_OPTION = "option."
"""Marks what ``OPTIONS (…)`` says among a table's properties."""
_METADATA = "consumer_sdk.options"


def is_table(options: Mapping[str, str]) -> bool:
    """They are the properties of a table that is being made."""
    return "provider" in {name.lower() for name in options}


def source_options(options: Mapping[str, str]) -> dict[str, str]:
    """What the user has said; names are in lower case.

    Raises:
        ConfigurationError: ``load()`` was given several URLs, or another one than the options.
    """
    given = {name.lower(): text for name, text in options.items()}
    if is_table(given):
        named = {name: text for name, text in given.items() if name.startswith(_OPTION)}
        given = {name.removeprefix(_OPTION): text for name, text in named.items()}
    if "paths" in given:
        raise ConfigurationError(
            "load() was given several: give one URL, kafka://host:9092/orders,payments"
        )
    path = given.pop("path", None)
    if path is not None and given.setdefault("url", path) != path:
        raise ConfigurationError(
            "load() was given a URL, and so were the options: give one of them"
        )
    return given


def with_options(schema: StructType, options: Mapping[str, str]) -> StructType:
    """The columns of a table, with its options."""
    made = StructType.fromJson(schema.jsonValue())
    made.fields[0].metadata[_METADATA] = json.dumps(dict(options))
    return made


def stored_options(schema: StructType) -> dict[str, str]:
    """The options of the table that has these columns; empty if it is none."""
    text = schema.fields[0].metadata.get(_METADATA) if schema.fields else None
    return json.loads(text) if text else {}
