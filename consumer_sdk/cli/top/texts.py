"""Texts of a server, which may hold anything, as a terminal may be given them."""

from __future__ import annotations

from typing import Any

__all__ = ["printable"]


def printable(value: Any) -> Any:
    """All texts without what a terminal would obey: a record's key may hold anything."""
    if isinstance(value, str):
        return value if value.isprintable() else "".join(map(_escaped, value))
    if isinstance(value, dict):
        return {name: printable(each) for name, each in value.items()}
    return [printable(each) for each in value] if isinstance(value, list) else value


def _escaped(letter: str) -> str:
    return letter if letter.isprintable() else letter.encode("unicode_escape").decode()
