"""Feed URLs: ``feed:///absolute/directory?option=value``.

``feed+s3://bucket/directory?option=value`` is a directory of the fsspec file system ``s3``, and so
on for each name that fsspec knows; credentials are what that file system finds by itself (its
environment variables, or fsspec's own configuration files): a URL is no place for secrets.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

from consumer_sdk.adapters.urls import shown
from consumer_sdk.errors import ConfigurationError
from consumer_sdk.spark_bridge.feed.files import Files, PosixFiles
from consumer_sdk.spark_bridge.feed.fsspec_files import fsspec_files
from consumer_sdk.spark_bridge.feed.reader_marks import check_name
from consumer_sdk.spark_bridge.option_values import choice, count, duration

__all__ = ["FeedUrl"]

_EXAMPLE = "feed:///data/landing/orders?maxRowsPerTrigger=500000"


@dataclass(frozen=True, slots=True)
class FeedUrl:
    """What a feed URL asks for.

    Attributes:
        directory: the feed directory.
        max_rows: rows that one trigger may take (a larger segment is taken alone), or None.
        max_bytes: likewise, bytes of segment files.
        min_rows: a trigger leaves fewer to wait for more; None to take what there is.
        max_delay: seconds since the last batch after which it takes them nevertheless.
        tasks: the most Spark tasks for one trigger; None for Spark's default parallelism.
        reader: the query's name in the feed, under which it says what it has committed and so
            need not be kept for it; None for a query that holds nothing back, nor lets go.
        is_async: Spark's progress is tracked asynchronously, so that only its commits count.
        protocol: the fsspec file system; None for the local one.
    """

    directory: str
    max_rows: int | None = None
    max_bytes: int | None = None
    min_rows: int | None = None
    max_delay: float = 900.0
    tasks: int | None = None
    reader: str | None = None
    is_async: bool = False
    protocol: str | None = None

    @classmethod
    def parse(cls, url: str) -> FeedUrl:
        """Reads a URL.

        Raises:
            ConfigurationError: its scheme, directory or an option is wrong.
        """
        if not isinstance(url, str):
            raise ConfigurationError(f"{url!r} is not a URL; for example: {_EXAMPLE}")
        parts = _split(url)
        scheme, _, protocol = parts.scheme.partition("+")
        if scheme != "feed":
            raise ConfigurationError(
                f"{shown(url)}: Spark reads from feed:// URLs, such as {_EXAMPLE}; "
                f"{parts.scheme or 'no scheme'!r} is not one"
            )
        where = _bucket_path(parts) if protocol else _local_path(parts)
        if where is None or parts.fragment:
            raise ConfigurationError(
                f"{shown(url)}: needs an absolute directory after three slashes, such as {_EXAMPLE}, "
                "or a bucket and a directory, such as feed+s3://bucket/orders"
            )
        options = _options(url, parts.query)
        return cls(unquote(where), **options, protocol=protocol or None)

    def files(self) -> Files:
        """The files below the directory.

        Raises:
            ConfigurationError: there is no such fsspec file system, or it cannot be made.
            MissingExtraError: fsspec is not installed.
        """
        if self.protocol is None:
            return PosixFiles(Path(self.directory))
        return fsspec_files(self.directory, self.protocol)

    def check_exists(self) -> None:
        """Looks for the directory.

        Raises:
            ConfigurationError: it is not there, or cannot be a feed's.
        """
        files = self.files()
        if not files.is_there():
            raise ConfigurationError(
                f"there is no directory {files.directory}: open the SparkFeed first, or make it"
            )


def _split(url: str) -> SplitResult:
    try:
        return urlsplit(url)
    except ValueError as error:  # a bracket that is not closed
        raise ConfigurationError(f"{shown(url)}: {error}; for example: {_EXAMPLE}") from error


def _local_path(parts: SplitResult) -> str | None:
    is_absolute = parts.path.startswith("/") and parts.path != "/"
    return parts.path if is_absolute and not parts.netloc else None


def _bucket_path(parts: SplitResult) -> str | None:
    path = parts.netloc + parts.path
    return path if path.strip("/") else None


_Parsed: TypeAlias = tuple[str, Any]


def _options(url: str, query: str) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in parse_qsl(query, keep_blank_values=True):
        parse = _OPTIONS.get(name)
        if parse is None:
            raise ConfigurationError(
                f"{shown(url)}: option {name!r} is unknown; options are {', '.join(_OPTIONS)}"
            )
        field, parsed = parse(url, name, value)
        if field in found:
            raise ConfigurationError(f"{shown(url)}: option {name!r} is given twice")
        found[field] = parsed
    return _checked(url, found)


def _checked(url: str, found: dict[str, Any]) -> dict[str, Any]:
    """The options that go together, without those that only said which others are meant."""
    if "max_rows" in found and "max_bytes" in found:
        raise ConfigurationError(
            f"{shown(url)}: Spark takes one limit: maxRowsPerTrigger or maxBytesPerTrigger, not both"
        )
    if found.get("min_rows", 0) > found.get("max_rows", math.inf):
        raise ConfigurationError(f"{shown(url)}: minRowsPerTrigger is more than maxRowsPerTrigger")
    if "max_delay" in found and "min_rows" not in found:
        raise ConfigurationError(
            f"{shown(url)}: maxTriggerDelay means nothing without minRowsPerTrigger"
        )
    lets_go = found.pop("retention", "keep") == "committed"
    if lets_go != ("reader" in found):
        raise ConfigurationError(
            f"{shown(url)}: retention=committed and reader=NAME go together: the name, one for each "
            "query, is under what the feed keeps how far the query is"
        )
    if "is_async" in found and not lets_go:
        raise ConfigurationError(f"{shown(url)}: asyncProgress means nothing without retention")
    return found


def _typed(field: str, read: Callable[[str, str], Any]) -> Callable[[str, str, str], _Parsed]:
    def parse(url: str, name: str, value: str) -> _Parsed:
        try:
            return field, read(name, value)
        except ConfigurationError as error:
            raise ConfigurationError(f"{shown(url)}: {error}") from None

    return parse


def _choice(field: str, **choices: Any) -> Callable[[str, str, str], _Parsed]:
    return _typed(field, lambda option, text: choices[choice(option, text, choices)])


def _name(_option: str, value: str) -> str:
    check_name(value)
    return value


_OPTIONS: Mapping[str, Callable[[str, str, str], _Parsed]] = {
    "maxRowsPerTrigger": _typed("max_rows", count),
    "maxBytesPerTrigger": _typed("max_bytes", count),
    "minRowsPerTrigger": _typed("min_rows", count),
    "maxTriggerDelay": _typed("max_delay", duration),
    "tasks": _typed("tasks", count),
    "retention": _choice("retention", keep="keep", committed="committed"),
    "reader": _typed("reader", _name),
    "asyncProgress": _choice("is_async", true=True, false=False),
}
