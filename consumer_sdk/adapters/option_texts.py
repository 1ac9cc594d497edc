"""Options of adapters: given by name, or as the texts of a URL."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Collection, Mapping
from dataclasses import fields
from typing import Any, TypeVar
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

from consumer_sdk.errors import ConfigurationError

__all__ = ["make_options", "read_texts", "reader_like", "split_url", "topics_of", "truth"]

T = TypeVar("T")

TRUTH = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}


def make_options(kind: Callable[..., T], options: Mapping[str, Any]) -> T:
    """A dataclass of options.

    Raises:
        ConfigurationError: an option is unknown; names the one that was probably meant.
    """
    known = [field.name for field in fields(kind)]  # type: ignore[arg-type]  # a dataclass
    for name in options.keys() - set(known):
        near = difflib.get_close_matches(name, known, n=1)
        hint = f"did you mean {near[0]}=?" if near else f"there are {', '.join(known)}"
        raise ConfigurationError(f"unknown option {name}=…: {hint}")
    return kind(**options)


def split_url(url: str, schemes: Collection[str], form: str) -> tuple[SplitResult, dict[str, str]]:
    """A URL's parts, and the options in its query.

    Args:
        form: what to write instead, for errors. These show no query: it may hold a secret.

    Raises:
        ConfigurationError: the URL is malformed, has credentials, or an option twice.
    """
    shown = repr(url.partition("?")[0].rpartition("@")[2])
    try:
        parts = urlsplit(url)
    except ValueError as error:  # a bracket that is not closed
        raise ConfigurationError(f"{shown}: {error}; {form}") from error
    if parts.scheme not in schemes or "@" in parts.netloc:
        raise ConfigurationError(f"{shown}: {form}")
    pairs = parse_qsl(parts.query, keep_blank_values=True)
    if len(dict(pairs)) < len(pairs):
        raise ConfigurationError(f"{shown}: an option is given twice")
    return parts, dict(pairs)


def read_texts(
    texts: Mapping[str, str], readers: Mapping[str, Callable[[str], Any]], form: str
) -> dict[str, Any]:
    """The options' values.

    Raises:
        ConfigurationError: an option is unknown, or its value of another type.
    """
    found = {}
    for name, text in texts.items():
        if name not in readers:
            raise ConfigurationError(f"unknown option {name}= in the URL: {form}")
        try:
            found[name] = readers[name](text)
        except (KeyError, ValueError) as error:
            kind = "truth value" if readers[name] is truth else "number"
            raise ConfigurationError(f"{name}={text!r} in the URL is no {kind}") from error
    return found


def topics_of(path: str) -> list[str]:
    """The topics that a URL's path names."""
    return [unquote(topic) for topic in path.strip("/").split(",") if topic]


def reader_like(default: Any) -> Callable[[str], Any]:
    """Text to the type of an option's default."""
    if isinstance(default, bool):
        return truth
    return type(default) if isinstance(default, int | float) else str


def truth(text: str) -> bool:
    """Reads yes, no, true, false, 1 or 0.

    Raises:
        KeyError: it is none of them.
    """
    return TRUTH[text.lower()]
