"""What one manifest says: a segment, and the positions that it contains."""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from consumer_sdk.spark_bridge.errors import FeedFormatError

__all__ = ["VERSION", "Manifest"]

VERSION = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """One committed segment.

    Attributes:
        number: its place in the feed, from 0 without gaps.
        segment: the segment's file name.
        rows: records in it.
        size: bytes of the file.
        crc32: of the file's bytes.
        ranges: partition's text form → closed intervals of its integer positions. Several,
            since handlers finish out of order.
        texts: partition's text form → its other positions.
    """

    number: int
    segment: str
    rows: int
    size: int
    crc32: int
    ranges: Mapping[str, Sequence[tuple[int, int]]] = field(default_factory=dict)
    texts: Mapping[str, Sequence[str]] = field(default_factory=dict)

    def encode(self) -> bytes:
        """Canonical JSON with its own checksum."""
        body = {
            "version": VERSION,
            "number": self.number,
            "segment": self.segment,
            "rows": self.rows,
            "bytes": self.size,
            "crc32": self.crc32,
            "ranges": self.ranges,
            "texts": self.texts,
        }
        return _canonical({**body, "checksum": _checksum(body)}) + b"\n"

    @classmethod
    def decode(cls, data: bytes, number: int, where: str) -> Manifest:
        """Reads `encode` back.

        Raises:
            FeedFormatError: ``data`` is not manifest ``number``, or was changed.
        """
        try:
            body = json.loads(data)
            checksum = body.pop("checksum")
            version = body["version"]
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise _damaged(where, "it is not a manifest") from error
        if version != VERSION:
            raise FeedFormatError(
                f"{where} has format version {version!r}; this version of the SDK reads {VERSION}"
            )
        if checksum != _checksum(body):
            raise _damaged(where, "its checksum does not match")
        if body["number"] != number:
            raise _damaged(where, f"it says that it is number {body['number']}")
        return cls._from(body)

    @classmethod
    def _from(cls, body: dict[str, Any]) -> Manifest:
        return cls(
            number=body["number"],
            segment=body["segment"],
            rows=body["rows"],
            size=body["bytes"],
            crc32=body["crc32"],
            ranges={key: [(a, b) for a, b in spans] for key, spans in body["ranges"].items()},
            texts=body["texts"],
        )


def _canonical(body: Mapping[str, Any]) -> bytes:
    return json.dumps(body, sort_keys=True, separators=(",", ":")).encode()


def _checksum(body: Mapping[str, Any]) -> int:
    return zlib.crc32(_canonical(body))


def _damaged(where: str, why: str) -> FeedFormatError:
    return FeedFormatError(
        f"{where} is damaged: {why}. Restore it from a copy; without it the records that it "
        "names cannot be told from new ones"
    )
