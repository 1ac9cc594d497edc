"""Feed URLs: ``feed:///absolute/directory?option=value``.

``feed+s3://bucket/directory?option=value`` is a directory of the fsspec file system ``s3``, and so
on for each name that fsspec knows; credentials are what that file system finds by itself (its
environment variables, or fsspec's own configuration files): a URL is no place for secrets.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

from consumer_sdk.adapters.urls import shown
from consumer_sdk.errors import ConfigurationError
from consumer_sdk.options import TEXT, kinds_of, option, spelling_of
from consumer_sdk.spark_bridge.feed.files import Files, PosixFiles
from consumer_sdk.spark_bridge.feed.fsspec_files import fsspec_files
from consumer_sdk.spark_bridge.feed.reader_marks import check_name
from consumer_sdk.spark_bridge.option_values import COUNT, DURATION, one_of

__all__ = ["FeedUrl"]

_EXAMPLE = "feed:///data/landing/orders?maxRowsPerTrigger=500000"


def _reader_name(text: str) -> str:
    check_name(text)
    return text


READER = replace(TEXT, wanted="a name of up to 64 letters", read=_reader_name)


@dataclass(frozen=True, slots=True)
class FeedUrl:
    """What a feed URL asks for.

    Attributes:
        directory: the feed directory.
        max_rows: most rows in a micro-batch; give this or ``maxBytesPerTrigger``. Segments are read
            whole; a segment above the limit is read alone.
        max_bytes: most bytes of segment files in a micro-batch.
        min_rows: minimum rows per micro-batch; with fewer, the query waits.
        max_delay: longest time to wait for that minimum.
        tasks: maximum number of tasks; by default Spark's parallelism.
        retention: ``committed``, together with ``reader``, lets the feed delete what the query has
            committed.
        reader: the query's name in the feed, one for each query: the feed keeps how far it is under this name.
            A query without a name holds nothing back.
        is_async: ``true`` with Spark's asynchronous progress tracking, so that only its commits count.
        protocol: the fsspec file system; None for the local one.
    """

    directory: str
    max_rows: int | None = option(COUNT, spelled="maxRowsPerTrigger", default=None)
    max_bytes: int | None = option(COUNT, spelled="maxBytesPerTrigger", default=None)
    min_rows: int | None = option(COUNT, spelled="minRowsPerTrigger", default=None)
    max_delay: float = option(DURATION, spelled="maxTriggerDelay", default=900.0)
    tasks: int | None = option(COUNT, default=None)
    retention: str = option(one_of(("keep", "committed")), default="keep", compare=False)
    reader: str | None = option(READER, default=None)
    is_async: bool = option(
        one_of({"true": True, "false": False}), spelled="asyncProgress", default=False
    )
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


def _options(url: str, query: str) -> dict[str, Any]:
    kinds, names = kinds_of(FeedUrl), spelling_of(FeedUrl)
    found: dict[str, Any] = {}
    for name, text in parse_qsl(query, keep_blank_values=True):
        if name not in names:
            raise ConfigurationError(
                f"{shown(url)}: option {name!r} is unknown; options are {', '.join(names)}"
            )
        if names[name] in found:
            raise ConfigurationError(f"{shown(url)}: option {name!r} is given twice")
        try:
            found[names[name]] = kinds[names[name]].parse(name, text)
        except ConfigurationError as error:
            raise ConfigurationError(f"{shown(url)}: {error}") from None
    return _checked(url, found)


def _checked(url: str, found: dict[str, Any]) -> dict[str, Any]:
    """The options, which go together."""
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
    lets_go = found.get("retention") == "committed"
    if lets_go != ("reader" in found):
        raise ConfigurationError(
            f"{shown(url)}: retention=committed and reader=NAME go together: the name, one for each "
            "query, is under what the feed keeps how far the query is"
        )
    if "is_async" in found and not lets_go:
        raise ConfigurationError(f"{shown(url)}: asyncProgress means nothing without retention")
    return found
