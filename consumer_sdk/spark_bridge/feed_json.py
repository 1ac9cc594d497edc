"""Small JSON files that tell whether they are whole: canonical, with a version and a checksum."""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping
from typing import Any

from consumer_sdk.spark_bridge.errors import FeedFormatError

__all__ = ["VERSION", "damaged", "decode", "encode"]

VERSION = 2
"""Of the feed directory's format. 2: segments may be deleted."""


def encode(body: Mapping[str, Any]) -> bytes:
    """``body`` with a version and a checksum; the same bytes for the same content."""
    full = {"version": VERSION, **body}
    return _canonical({**full, "checksum": _checksum(full)}) + b"\n"


def decode(data: bytes, where: str) -> dict[str, Any]:
    """Reads `encode` back.

    Raises:
        FeedFormatError: ``data`` was changed, cut, or is something else.
    """
    try:
        body = json.loads(data)
        checksum = body.pop("checksum")
        version = body["version"]
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise damaged(where, "it is not a file of a feed") from error
    if version != VERSION:
        raise FeedFormatError(
            f"{where} has format version {version!r}; this version of the SDK reads {VERSION}"
        )
    if checksum != _checksum(body):
        raise damaged(where, "its checksum does not match")
    return dict(body)


def damaged(where: str, why: str) -> FeedFormatError:
    """The error for a file that cannot be used."""
    return FeedFormatError(
        f"{where} is damaged: {why}. Restore it from a copy; without it the records that the "
        "feed has cannot be told from new ones"
    )


def _canonical(body: Mapping[str, Any]) -> bytes:
    return json.dumps(body, sort_keys=True, separators=(",", ":")).encode()


def _checksum(body: Mapping[str, Any]) -> int:
    return zlib.crc32(_canonical(body))
