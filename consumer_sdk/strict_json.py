"""JSON objects from elsewhere, read without guessing."""

from __future__ import annotations

import json
from typing import Any

__all__ = ["load_object", "without_duplicates"]


def load_object(data: bytes) -> dict[str, Any]:
    """The one object in ``data``.

    Raises:
        ValueError: it is something else, or has a name twice.
    """
    try:
        body = json.loads(data.decode(), object_pairs_hook=without_duplicates)
    except RecursionError as error:
        raise ValueError("nested too deeply") from error
    if not isinstance(body, dict):
        raise ValueError("not a JSON object")  # noqa: TRY004 - one type for all bad content
    return body


def without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An ``object_pairs_hook``.

    Raises:
        ValueError: a name is there twice.
    """
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a name that is there twice")
    return found
