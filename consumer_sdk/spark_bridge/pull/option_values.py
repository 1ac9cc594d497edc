"""Values of Spark options: texts, all of them. Errors name the option and what is allowed."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

from consumer_sdk.errors import ConfigurationError
from consumer_sdk.records.strict_json import load_object

__all__ = ["choice", "count", "duration", "json_object", "names", "number", "secret", "truth"]

TRUTH = {"true": True, "false": False}
UNITS = {
    "us": 1e-6,
    "ms": 1e-3,
    "s": 1,
    "m": 60,
    "min": 60,
    "h": 3600,
    "d": 86400,
}
"""Seconds in Spark's units of time; a number alone is milliseconds."""
DIGITS = 18
"""Of a number: what 64 bits hold for sure."""
DURATION = re.compile(rf"([0-9]{{1,{DIGITS}}})\s*([a-z]*)")


def truth(option: str, text: str) -> bool:
    """``true`` or ``false``.

    Raises:
        ConfigurationError: it is neither.
    """
    return TRUTH[choice(option, text.lower(), TRUTH)]


def choice(option: str, text: str, allowed: Collection[str]) -> str:
    """One of ``allowed``.

    Raises:
        ConfigurationError: it is none of them.
    """
    if text not in allowed:
        raise ConfigurationError(f"{option}={text!r}: give one of {', '.join(allowed)}")
    return text


def number(option: str, text: str, least: int = 0) -> int:
    """An integer of at least ``least``.

    Raises:
        ConfigurationError: it is none.
    """
    digits = text.strip()
    is_number = digits.isascii() and digits.isdecimal() and len(digits) <= DIGITS
    if not is_number or int(digits) < least:
        raise ConfigurationError(f"{option}={text!r}: give an integer of at least {least}")
    return int(digits)


def count(option: str, text: str) -> int:
    """An integer of at least 1.

    Raises:
        ConfigurationError: it is none.
    """
    return number(option, text, 1)


def duration(option: str, text: str) -> float:
    """Seconds, of Spark's texts of durations: ``15m``, ``30s``, ``500ms``, ``500``.

    Raises:
        ConfigurationError: it is none.
    """
    found = DURATION.fullmatch(text.strip().lower())
    unit = found and UNITS.get(found[2] or "ms")
    if not found or unit is None:
        raise ConfigurationError(
            f"{option}={text!r}: give a number and one of {', '.join(UNITS)}, such as 15m"
        )
    return int(found[1]) * unit


def names(option: str, text: str) -> tuple[str, ...]:
    """Names with commas between.

    Raises:
        ConfigurationError: there is none, or one is there twice.
    """
    found = tuple(name.strip() for name in text.split(",") if name.strip())
    if not found or len(set(found)) < len(found):
        raise ConfigurationError(f"{option}={text!r}: give names with commas between, each once")
    return found


def json_object(option: str, text: str, form: str, kind: type = dict) -> dict[str, Any]:
    """Objects, or what ``kind`` says, by topic; none is empty.

    Args:
        form: what to write, for errors.
        kind: of each topic's value.

    Raises:
        ConfigurationError: it is no such JSON.
    """
    try:
        found = load_object(text.encode())
    except ValueError as error:
        raise ConfigurationError(f"{option}={text!r}: {error}; give {form}") from error
    if not found or not all(isinstance(each, kind) and each for each in found.values()):
        raise ConfigurationError(f"{option}={text!r}: give {form}")
    return found


def secret(option: str, text: str) -> str:
    """A secret: itself, or what ``env:NAME`` or ``file:/path`` names.

    Called where a connection is made: the plan of a query then holds the name alone. No error
    shows a secret.

    Raises:
        ConfigurationError: the variable is not set, or the file cannot be read.
    """
    kind, colon, name = text.partition(":")
    if not colon or kind not in SECRETS:
        return text
    try:
        return SECRETS[kind](name)
    except (KeyError, OSError, UnicodeError) as error:
        what = f"no environment variable {name!r}" if kind == "env" else f"{name!r} is unreadable"
        raise ConfigurationError(f"{option}={kind}:…: {what} in this process") from error


def _contents(path: str) -> str:
    return Path(path).read_text(encoding="utf-8").rstrip("\r\n")


SECRETS: dict[str, Callable[[str], str]] = {"env": os.environ.__getitem__, "file": _contents}
