"""Feed URLs: ``feed:///absolute/directory?option=value``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

from consumer_sdk.errors import ConfigurationError

__all__ = ["FeedUrl"]

_EXAMPLE = "feed:///data/landing/orders?maxRowsPerTrigger=500000"


@dataclass(frozen=True, slots=True)
class FeedUrl:
    """What a feed URL asks for.

    Attributes:
        directory: the feed directory.
        max_rows: rows that one trigger may take (a larger segment is taken alone), or None.
        max_bytes: likewise, bytes of segment files.
        tasks: the most Spark tasks for one trigger; None for Spark's default parallelism.
    """

    directory: str
    max_rows: int | None = None
    max_bytes: int | None = None
    tasks: int | None = None

    @classmethod
    def parse(cls, url: str) -> FeedUrl:
        """Reads a URL.

        Raises:
            ConfigurationError: its scheme, directory or an option is wrong.
        """
        if not isinstance(url, str):
            raise ConfigurationError(f"{url!r} is not a URL; for example: {_EXAMPLE}")
        parts = urlsplit(url)
        if parts.scheme != "feed":
            raise ConfigurationError(
                f"{url!r}: Spark reads from feed:// URLs, such as {_EXAMPLE}; "
                f"{parts.scheme or 'no scheme'!r} is not one"
            )
        if parts.netloc or not parts.path.startswith("/") or parts.path == "/" or parts.fragment:
            raise ConfigurationError(
                f"{url!r}: needs an absolute directory after three slashes, such as {_EXAMPLE}"
            )
        return cls(unquote(parts.path), **_options(url, parts.query))


_OPTIONS: Mapping[str, str] = {
    "maxRowsPerTrigger": "max_rows",
    "maxBytesPerTrigger": "max_bytes",
    "tasks": "tasks",
}


def _options(url: str, query: str) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in parse_qsl(query, keep_blank_values=True):
        field = _OPTIONS.get(name)
        if field is None or field in found:
            why = "is unknown" if field is None else "is given twice"
            raise ConfigurationError(
                f"{url!r}: option {name!r} {why}; options are {', '.join(_OPTIONS)}"
            )
        found[field] = _count(url, name, value)
    if "max_rows" in found and "max_bytes" in found:
        raise ConfigurationError(
            f"{url!r}: Spark takes one limit: maxRowsPerTrigger or maxBytesPerTrigger, not both"
        )
    return found


def _count(url: str, name: str, value: str) -> int:
    if not (value.isascii() and value.isdecimal()) or int(value) < 1:
        raise ConfigurationError(f"{url!r}: {name}={value!r} must be an integer of at least 1")
    return int(value)
