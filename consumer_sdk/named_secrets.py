"""Secrets that options name by ``env:`` or ``file:``: plans, pickles and logs hold only the names."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from consumer_sdk.errors import ConfigurationError

__all__ = ["SECRETS", "secret"]


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
