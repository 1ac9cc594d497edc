"""Values of Spark options: texts, all of them. Errors name the option and what is allowed."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from consumer_sdk.errors import ConfigurationError
from consumer_sdk.named_secrets import secret
from consumer_sdk.options import ANYTHING, OptionType, kinds_of, spelling_of
from consumer_sdk.strict_json import load_object

__all__ = [
    "COUNT",
    "DURATION",
    "MILLISECONDS",
    "NAMES",
    "NUMBER",
    "TASKS",
    "TRUTH",
    "choice",
    "is_feed",
    "json_object",
    "one_of",
    "read_fields",
    "secret",
    "spelled",
]

T = TypeVar("T")

TASKS = "CONSUMER_SDK_SPARK_TASKS"
"""In the environment of a registered source's processes: how many tasks the session runs at a time."""

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
DURATION_TEXT = re.compile(rf"([0-9]{{1,{DIGITS}}})\s*([a-z]*)")


def is_feed(url: str) -> bool:
    """Whether a URL names a feed's directory, here or in another file system: ``feed://``, ``feed+s3://``."""
    return url.partition(":")[0].partition("+")[0] == "feed"


def one_of(known: Collection[str], *, any_case: bool = False) -> OptionType:
    """One of a few texts.

    Args:
        known: the texts; or a mapping of what they mean.
        any_case: of the letters; blanks around them do not matter then.
    """
    meanings = known if isinstance(known, Mapping) else {text: text for text in known}

    def read(text: str) -> Any:
        name = text.strip().lower() if any_case else text
        if name not in meanings:
            raise ValueError(text)
        return meanings[name]

    return replace(ANYTHING, wanted=f"one of {', '.join(known)}", read=read)


def _whole_number(text: str, least: int = 1) -> int:
    digits = text.strip()
    is_number = digits.isascii() and digits.isdecimal() and len(digits) <= DIGITS
    if not is_number or int(digits) < least:
        raise ValueError(text)
    return int(digits)


def _duration(text: str) -> float:
    found = DURATION_TEXT.fullmatch(text.strip().lower())
    if not found or (found[2] or "ms") not in UNITS:
        raise ValueError(text)
    return int(found[1]) * UNITS[found[2] or "ms"]


def _names(text: str) -> tuple[str, ...]:
    found = tuple(name.strip() for name in text.split(",") if name.strip())
    if not found or len(set(found)) < len(found):
        raise ValueError(text)
    return found


COUNT = replace(ANYTHING, wanted="an integer of at least 1", read=_whole_number)
NUMBER = replace(
    ANYTHING, wanted="an integer of at least 0", read=lambda text: _whole_number(text, 0)
)
MILLISECONDS = replace(COUNT, read=lambda text: _whole_number(text) / 1000)
"""As seconds."""
DURATION = replace(
    ANYTHING, wanted=f"a number and one of {', '.join(UNITS)}, such as 15m", read=_duration
)
"""Seconds, of Spark's texts of durations: ``15m``, ``30s``, ``500ms``, ``500``."""
TRUTH = one_of({"true": True, "false": False}, any_case=True)
NAMES = replace(ANYTHING, wanted="names with commas between, each once", read=_names)


def read_fields(options: type[T], given: Mapping[str, str]) -> T:
    """A dataclass of options, of those texts that are for its fields.

    Raises:
        ConfigurationError: a value is wrong.
    """
    kinds = kinds_of(options)
    names = {name: each for name, each in spelling_of(options).items() if name in given}
    return options(**{each: kinds[each].parse(name, given[name]) for name, each in names.items()})


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


def choice(option: str, text: str, allowed: Collection[str]) -> str:
    """One of ``allowed``.

    Raises:
        ConfigurationError: it is none of them.
    """
    found: str = one_of(allowed).parse(option, text)
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
