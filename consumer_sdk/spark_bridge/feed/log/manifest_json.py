"""Small JSON files that tell whether they are whole: canonical, with a version and a checksum."""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from consumer_sdk.spark_bridge.errors import FeedFormatError

__all__ = ["VERSION", "Fields", "damaged", "decode", "encode"]

T = TypeVar("T")

VERSION = 2
"""Of the feed directory's format. 2: segments may be deleted."""


def encode(body: Mapping[str, Any]) -> bytes:
    """``body`` with a version and a checksum; the same bytes for the same content."""
    full = {"version": VERSION, **body}
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
        raise damaged(where, "it is not a file of a feed") from error
    if version != VERSION:
        raise FeedFormatError(
            f"{where} has format version {version!r}; this version of the SDK reads {VERSION}"
        )
    if not is_whole:
        raise damaged(where, "its checksum does not match")
    return Fields(where, body)


@dataclass(frozen=True, slots=True)
class Fields:
    """A file's content. A right checksum does not make it right: whoever can write can seal it.

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
        return damaged(self.where, f"its {name!r} is not what a feed writes there")


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
