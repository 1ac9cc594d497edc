"""An idempotent sink: one file for each micro-batch, replaced as a whole.

A batch that Spark runs again writes its file again. What the sink holds in the end is then each
record once, if each batch was read as before; that is looked at too.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

__all__ = ["Events", "Landed", "Row", "Sink"]


class Row(NamedTuple):
    """A record, and where the broker has it."""

    stream: str
    partition: str
    position: str
    value: str


class Events:
    """Lines of what the driver does, in a file that outlives it."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def say(self, line: str) -> None:
        """Appends a line."""
        out = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        try:
            os.write(out, f"{line}\n".encode())
        finally:
            os.close(out)

    def lines(self) -> list[str]:
        """What was said so far."""
        return self._path.read_text().splitlines() if self._path.exists() else []

    def count(self, word: str) -> int:
        """How many lines begin with ``word``."""
        return sum(line.split()[0] == word for line in self.lines())

    @property
    def is_within_batch(self) -> bool:
        """A batch has begun, and has not ended."""
        lines = self.lines()
        return bool(lines) and lines[-1].startswith("begin ")


class Sink:
    """The driver's side.

    Args:
        folder: of the files.
        events: hears of batches that begin, end, come again, or come again with other rows.
    """

    def __init__(self, folder: Path, events: Events) -> None:
        self._folder = folder
        self._events = events

    def write(self, number: int, rows: Iterable[Row]) -> None:
        """Makes the file of a batch, or makes it again."""
        path = self._folder / f"{number}.ndjson"
        text = "".join(f"{json.dumps(row)}\n" for row in sorted(rows))
        if path.exists():
            self._events.say(_compared(number, path.read_text(), text))
        scratch = path.with_suffix(".part")
        with scratch.open("w") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        scratch.replace(path)


def _compared(number: int, before: str, now: str) -> str:
    if before == now:
        return f"again {number}"
    old, new = set(before.splitlines()), set(now.splitlines())
    return (
        f"differs {number}: gone {sorted(old - new)[:3]}, new {sorted(new - old)[:3]} of {len(new)}"
    )


class Landed:
    """The test's side: what has arrived, read again only where a file has changed.

    Attributes:
        newest: the highest number that was ever seen as a value; -1 before the first.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.newest = -1
        self._files: dict[Path, tuple[tuple[int, int], list[Row]]] = {}

    def look(self) -> None:
        """Reads what is new."""
        for path in self._folder.glob("*.ndjson"):
            found = path.stat()
            state = found.st_ino, found.st_mtime_ns
            if path not in self._files or self._files[path][0] != state:
                rows = [Row(*row) for row in _lines(path)]
                self._files[path] = state, rows
                self.newest = max(self.newest, *(int(row.value) for row in rows), -1)

    @property
    def rows(self) -> list[Row]:
        """Everything that has arrived; twice where it did twice."""
        return [row for _, rows in self._files.values() for row in rows]


def _lines(path: Path) -> Iterator[list[str]]:
    return map(json.loads, path.read_text().splitlines())
