"""The small files of a feed: manifests and summaries, and their JSON.

- Manifest ``N`` commits segment ``N``: it says which positions the segment has, and who wrote it.
- Summary ``N`` replaces the manifests below ``N``, whose segments were deleted. It lists the
  integer positions that these segments had. Text positions would make it large: manifests with text
  positions are kept as long as the feed remembers them, and the summary names them.

Each file is canonical JSON with a version and a checksum, so that it tells whether it is whole.
"""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from consumer_sdk.spark_bridge.errors import FeedFormatError

__all__ = ["Fields", "Manifest", "Summary", "Writer", "decode", "encode"]


T = TypeVar("T")

_VERSION = 2
"""Of the feed directory's format. 2: segments may be deleted."""


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
            raise _damaged(where, f"it says that it is number {fields.body['number']}")
        segment = fields.text("segment")
        if not _SEGMENT.fullmatch(segment):
            raise _damaged(where, f"{segment!r} is not the name of a segment")
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """Everything below one number.

    Attributes:
        number: the first manifest whose segment is kept.
        ranges: partition's text form → closed intervals of integer positions that the feed has
            or had. It may name later ones too.
        remembered: closed intervals of the numbers below whose manifests are kept for their
            text positions.
        at: the latest time that a manifest says, as there.
    """

    number: int = 0
    ranges: Mapping[str, Sequence[tuple[int, int]]] = field(default_factory=dict)
    remembered: Sequence[tuple[int, int]] = ()
    at: int = 0

    def remembers(self, number: int) -> bool:
        """Manifest ``number``, below this one, is kept."""
        return any(first <= number <= last for first, last in self.remembered)

    def encode(self) -> bytes:
        """Canonical JSON with its own checksum."""
        return encode(
            {
                "summary": self.number,
                "ranges": self.ranges,
                "remembered": self.remembered,
                "at": self.at,
            }
        )

    @classmethod
    def decode(cls, data: bytes, number: int, where: str) -> Summary:
        """Reads `encode` back.

        Raises:
            FeedFormatError: ``data`` is not summary ``number``, or was changed.
        """
        fields = decode(data, where)
        if fields.body.get("summary") != number:
            raise _damaged(where, f"it is not summary {number}")
        return cls(
            number=number,
            ranges=fields.intervals_by_key("ranges"),
            remembered=fields.intervals("remembered"),
            at=fields.integer("at"),
        )


# -- the JSON -------------------------------------------------------------------------------


def encode(body: Mapping[str, Any]) -> bytes:
    """``body`` with a version and a checksum; the same bytes for the same content."""
    full = {"version": _VERSION, **body}
    return _canonical({**full, "checksum": _checksum(full)}) + b"\n"


def decode(data: bytes, where: str) -> Fields:
    """Reads `encode` back.

    Raises:
        FeedFormatError: ``data`` was changed, cut, or is something else.
    """
    try:
        body = json.loads(data)
        checksum = body.pop("checksum")
        version = body["version"]
        is_whole = checksum == _checksum(body)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise _damaged(where, "it is not a file of a feed") from error
    if version != _VERSION:
        raise FeedFormatError(
            f"{where} has format version {version!r}; this version of the SDK reads {_VERSION}"
        )
    if not is_whole:
        raise _damaged(where, "its checksum does not match")
    return Fields(where, body)


@dataclass(frozen=True, slots=True)
class Fields:
    """A file's content, which is checked field by field. A right checksum is not enough, because any writer can compute it.

    Attributes:
        where: the file, as errors name it.
        body: its JSON.

    Every method raises FeedFormatError where a field is missing or is of another type.
    """

    where: str
    body: Mapping[str, Any]

    def integer(self, name: str) -> int:
        """A whole number."""
        return self._typed(self.body.get(name), int, name)

    def text(self, name: str) -> str:
        """A text."""
        return self._typed(self.body.get(name), str, name)

    def array(self, name: str, *kinds: type) -> list[Any]:
        """A list of as many values, of these types."""
        values: list[Any] = self._typed(self.body.get(name), list, name)
        if [type(value) for value in values] != list(kinds):
            raise self._wrong(name)
        return values

    def intervals(self, name: str) -> list[tuple[int, int]]:
        """Pairs of whole numbers."""
        return self._pairs(self.body.get(name), name)

    def intervals_by_key(self, name: str) -> dict[str, list[tuple[int, int]]]:
        """Pairs of whole numbers by text."""
        found = self._typed(self.body.get(name), dict, name)
        return {key: self._pairs(pairs, name) for key, pairs in found.items()}

    def texts_by_key(self, name: str) -> dict[str, Sequence[str]]:
        """Lists of texts by text."""
        found: dict[str, Any] = self._typed(self.body.get(name), dict, name)
        for texts in found.values():
            for text in self._typed(texts, list, name):
                self._typed(text, str, name)
        return found

    def _pairs(self, pairs: object, name: str) -> list[tuple[int, int]]:
        lists = [self._typed(pair, list, name) for pair in self._typed(pairs, list, name)]
        if not all([type(value) for value in pair] == [int, int] for pair in lists):
            raise self._wrong(name)
        return [(first, last) for first, last in lists]

    def _typed(self, value: object, kind: type[T], name: str) -> T:
        if type(value) is not kind:
            raise self._wrong(name)
        return value

    def _wrong(self, name: str) -> FeedFormatError:
        return _damaged(self.where, f"its {name!r} is not what a feed writes there")


def _damaged(where: str, why: str) -> FeedFormatError:
    """The error for a file that cannot be used."""
    return FeedFormatError(
        f"{where} is damaged: {why}. Restore it from a copy; without it the records that the "
        "feed has cannot be told from new ones"
    )


def _canonical(body: Mapping[str, Any]) -> bytes:
    return json.dumps(body, sort_keys=True, separators=(",", ":")).encode()


def _checksum(body: Mapping[str, Any]) -> int:
    return zlib.crc32(_canonical(body))
