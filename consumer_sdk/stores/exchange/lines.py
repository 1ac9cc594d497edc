r"""Checkpoints as JSON lines, on their way from one store into another. No I/O but of the file.

::

    {"format":"consumer_sdk checkpoints","version":1}
    {"group":"billing","stream":"orders","pin":"time:1.5"}
    {"group":"billing","stream":"orders","partition":"0","checkpoint":"{\"version\":1,…}"}
    {"lines":2,"sha256":"9f86d081…"}

A checkpoint is a string, so that its text stays what it is, byte by byte. The last line counts
those between it and the first, and has the SHA-256 of all bytes before it, so that a file which
was cut off or changed is found out. No line says who
owned a partition: a fence orders the owners of one store, and means nothing in another.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any, BinaryIO, NamedTuple

from consumer_sdk.errors import CheckpointFormatError
from consumer_sdk.records import Partition
from consumer_sdk.strict_json import load_object

__all__ = ["CheckpointFile", "Entry", "Found", "Lines", "line_of"]

FORMAT = "consumer_sdk checkpoints"
VERSION = 1
MAX_LINE = 8_000_000
"""Bytes: a store takes checkpoints of 1 MB, and a character of one takes up to 6 bytes here."""

CHECKPOINT = ("group", "stream", "partition", "checkpoint")
PIN = ("group", "stream", "pin")
LAST = ("lines", "sha256")


class Entry(NamedTuple):
    """A checkpoint, or a group's pinned start, on its way into a store.

    Attributes:
        where: where it was read, for errors.
        group: the group that it belongs to.
        stream: likewise.
        id: of the partition; None for a pinned start.
        text: what the store keeps.
    """

    where: str
    group: str
    stream: str
    id: str | None
    text: str

    @property
    def partition(self) -> Partition:
        """Of a checkpoint."""
        return Partition(self.stream, self.id or "")

    def __str__(self) -> str:
        what = f"the start of {self.stream!r}" if self.id is None else f"{self.partition}"
        return f"{self.where}: {what} in group {self.group!r}"


@dataclass(frozen=True, slots=True)
class Found:
    """The checkpoints of another program that were found.

    Attributes:
        entries: for `import_checkpoints`.
        skipped: path of a znode, place of a lease, or shard → why there is nothing to import from it.
        notes: further notes for a person.
    """

    entries: Sequence[Entry]
    skipped: Mapping[str, str] = field(default_factory=dict)
    notes: Sequence[str] = ()


def line_of(entry: Entry) -> str:
    """An entry's line."""
    if entry.id is None:
        return _line(dict(zip(PIN, (entry.group, entry.stream, entry.text), strict=True)))
    values = (entry.group, entry.stream, entry.id, entry.text)
    return _line(dict(zip(CHECKPOINT, values, strict=True)))


class Lines:
    """Counts and sums up the lines of a file, on their way into it or out of it.

    Attributes:
        first: the line that says what the others are.
    """

    first = f'{{"format":"{FORMAT}","version":{VERSION}}}\n'

    def __init__(self) -> None:
        self._count = -1  # without the first one
        self._digest = hashlib.sha256()

    def add(self, line: bytes) -> None:
        """The next line, with its line feed."""
        self._digest.update(line)
        self._count += 1

    @property
    def last(self) -> str:
        """The line that comes after those."""
        values = (self._count, self._digest.hexdigest())
        return _line(dict(zip(LAST, values, strict=True)))


def _line(body: dict[str, Any]) -> str:
    return json.dumps(body, separators=(",", ":")) + "\n"


class CheckpointFile:
    """The entries of a file. Each iteration reads the file again, a line at a time.

    Args:
        file: a file that can be read again from its current position.
        name: what errors call it.

    An iteration raises:

    Raises:
        CheckpointFormatError: a line is not what an export writes, or some are missing; says
            which.
    """

    def __init__(self, file: BinaryIO, name: str = "the file") -> None:
        self._file = file
        self._name = name
        self._start = file.tell()

    def __iter__(self) -> Iterator[Entry]:
        self._file.seek(self._start)
        lines = Lines()
        line, body = self._next(1)
        self._check_first(body)
        for number in count(2):
            lines.add(line)
            line, body = self._next(number)
            if body.keys() == set(LAST):
                break
            yield self._entry(number, body)
        self._check_last(number, line, lines.last)

    def _next(self, number: int) -> tuple[bytes, dict[str, Any]]:
        line = self._file.readline(MAX_LINE + 1)
        if not line.endswith(b"\n"):
            raise self._error(
                number,
                f"longer than {MAX_LINE} bytes"
                if len(line) > MAX_LINE
                else "it ends too early: the last line of an export counts the others",
            )
        try:
            return line, load_object(line)
        except ValueError as error:
            raise self._error(number, f"not a line of an export: {error}") from error

    def _check_first(self, body: dict[str, Any]) -> None:
        if body.get("format") != FORMAT:
            raise self._error(1, f"not the first line of an export: {Lines.first.strip()}")
        if type(version := body.get("version")) is not int or version != VERSION:
            raise self._error(
                1, f"version {version!r:.80}, and this consumer_sdk knows version {VERSION}"
            )

    def _check_last(self, number: int, line: bytes, expected: str) -> None:
        if line != expected.encode():
            raise self._error(
                number,
                f"{line.decode().strip():.200}, and the lines before it make "
                f"{expected.strip()}: the file was changed, export again",
            )
        if self._file.read(1):
            raise self._error(number + 1, "nothing may come after the line that counts the others")

    def _entry(self, number: int, body: dict[str, Any]) -> Entry:
        if body.keys() not in (set(CHECKPOINT), set(PIN)):
            raise self._error(number, f"its fields are {', '.join(body):.200}")
        for name, value in body.items():
            if not isinstance(value, str) or not _is_unicode(value):
                raise self._error(number, f"{name} is no text: {value!r:.80}")
        where, id_ = self._where(number), body.get("partition")
        text = body["pin"] if id_ is None else body["checkpoint"]
        return Entry(where, body["group"], body["stream"], id_, text)

    def _error(self, number: int, what: str) -> CheckpointFormatError:
        return CheckpointFormatError(f"{self._where(number)}: {what}")

    def _where(self, number: int) -> str:
        return f"{self._name}, line {number}"


def _is_unicode(text: str) -> bool:
    """Half of a surrogate pair can be written in JSON, and nowhere else."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
