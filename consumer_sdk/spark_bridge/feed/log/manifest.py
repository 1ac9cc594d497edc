"""What one manifest says: a segment, the positions that it contains, and who wrote it."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from consumer_sdk.spark_bridge.feed.log.manifest_json import damaged, decode, encode

__all__ = ["Manifest", "Writer"]

# A file's name comes from a file: it may lead nowhere else.
_SEGMENT = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9_.-]{0,254}", re.ASCII)


@dataclass(frozen=True, slots=True)
class Writer:
    """Who wrote a manifest.

    Attributes:
        name: of its own for each time that a feed is opened.
        epoch: the feed's next number when it was opened; of two writers, the one with the higher
            epoch was opened later, whatever their clocks say.
        serial: of this manifest among the writer's own attempts.
    """

    name: str = ""
    epoch: int = 0
    serial: int = 0


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
        at: milliseconds since 1970 by the writer's clock, never less than the manifest's before.
        writer: who wrote it.
    """

    number: int
    segment: str
    rows: int
    size: int
    crc32: int
    ranges: Mapping[str, Sequence[tuple[int, int]]] = field(default_factory=dict)
    texts: Mapping[str, Sequence[str]] = field(default_factory=dict)
    at: int = 0
    writer: Writer = field(default_factory=Writer)

    def encode(self) -> bytes:
        """Canonical JSON with its own checksum."""
        return encode(
            {
                "number": self.number,
                "segment": self.segment,
                "rows": self.rows,
                "bytes": self.size,
                "crc32": self.crc32,
                "ranges": self.ranges,
                "texts": self.texts,
                "at": self.at,
                "writer": [self.writer.name, self.writer.epoch, self.writer.serial],
            }
        )

    @classmethod
    def decode(cls, data: bytes, number: int, where: str) -> Manifest:
        """Reads `encode` back.

        Raises:
            FeedFormatError: ``data`` is not manifest ``number``, or was changed.
        """
        fields = decode(data, where)
        if fields.integer("number") != number:
            raise damaged(where, f"it says that it is number {fields.body['number']}")
        segment = fields.text("segment")
        if not _SEGMENT.fullmatch(segment):
            raise damaged(where, f"{segment!r} is not the name of a segment")
        return cls(
            number=number,
            segment=segment,
            rows=fields.integer("rows"),
            size=fields.integer("bytes"),
            crc32=fields.integer("crc32"),
            ranges=fields.intervals_by_key("ranges"),
            texts=fields.texts_by_key("texts"),
            at=fields.integer("at"),
            writer=Writer(*fields.array("writer", str, int, int)),
        )
