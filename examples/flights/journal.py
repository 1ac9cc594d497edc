"""A journal on disk of every delivery of a record to the handler, or to the Spark job.

It survives ``kill -9`` and tells redeliveries from first deliveries.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from pathlib import Path

from consumer_sdk import Message

ENTRY = struct.Struct("<iqi")  # partition, offset, attempt


class Journal:
    """Appends an entry for each delivery, a batch at a time, unbuffered."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("ab", buffering=0)

    def write(self, batch: Iterable[Message]) -> None:
        """Writes the deliveries of a batch."""
        self.note((int(m.partition.id), m.position, m.attempt) for m in batch)

    def note(self, entries: Iterable[tuple[int, int, int]]) -> None:
        """Writes deliveries: partition, offset, attempt."""
        self._file.write(b"".join(ENTRY.pack(*entry) for entry in entries))

    def close(self) -> None:
        """Closes the file."""
        self._file.close()


def deliveries(path: Path) -> int:
    """How many deliveries a journal holds so far."""
    return path.stat().st_size // ENTRY.size if path.exists() else 0


def redelivered(paths: Iterable[Path]) -> int:
    """How many deliveries repeat an earlier one: same record, same attempt."""
    entries = [
        entry for path in paths if path.exists() for entry in ENTRY.iter_unpack(_whole(path))
    ]
    return len(entries) - len(set(entries))


def _whole(path: Path) -> bytes:
    content = path.read_bytes()
    return content[: len(content) // ENTRY.size * ENTRY.size]
