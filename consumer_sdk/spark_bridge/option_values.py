"""Values of Spark options: texts, all of them. Errors name the option and what is allowed."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from consumer_sdk.errors import ConfigurationError
from consumer_sdk.named_secrets import secret
from consumer_sdk.records.strict_json import load_object

__all__ = [
    "choice",
    "count",
    "duration",
    "json_object",
    "names",
    "number",
    "secret",
    "spelled",
    "truth",
]

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


def spelled(
    options: Mapping[str, str], ours: Sequence[str], is_unused: Callable[[str], bool]
) -> dict[str, str]:
    """Options by the names as ``ours`` writes them, and ``kafka.…`` in lower case.

    Args:
        options: as Spark hands them over, in lower case.
        ours: the names that are known, but for ``kafka.…``.
        is_unused: whether a name in lower case is accepted and means nothing.

    Raises:
        ConfigurationError: one is unknown; names the one that was probably meant.
    """
    spelling = {name.lower(): name for name in ours}
    found = {}
    for name, value in options.items():
        lower = name.lower()
        if lower in spelling or lower.startswith("kafka."):
            found[spelling.get(lower, lower)] = value
        elif not is_unused(lower):
            near = difflib.get_close_matches(lower, spelling, n=1)
            hint = f"did you mean {spelling[near[0]]}?" if near else f"there are {', '.join(ours)}"
            raise ConfigurationError(f"unknown option {name}: {hint}")
    return found


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
