"""Makes columns of aiokafka's own records, which live only while their batch is read."""

from __future__ import annotations

import gc
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any

from consumer_sdk.range_reads import Columns, Header
from consumer_sdk.records.messages import total_bytes

__all__ = ["NO_TIMESTAMP", "Part", "collector_off"]

KEY, VALUE, TIMESTAMP = map(attrgetter, ("key", "value", "timestamp"))
OFFSET, HEADERS = map(attrgetter, ("offset", "headers"))
NO_TIMESTAMP = -1


@dataclass(slots=True)
class Part:
    """Columns in the making.

    Attributes:
        timestamp_type: of all its records.
        size: bytes of keys and values.
    """

    timestamp_type: int | None = None
    positions: Sequence[int] = ()
    keys: list[bytes | None] = field(default_factory=list)
    values: list[bytes | None] = field(default_factory=list)
    timestamps: list[int | None] = field(default_factory=list)
    headers: list[Sequence[Header]] = field(default_factory=list)
    size: int = 0

    def add(self, records: Sequence[Any], *, with_headers: bool) -> None:
        """Appends records of the client, at least one; all are of one timestamp type."""
        self.timestamp_type = records[0].timestamp_type
        self.positions = _joined(self.positions, _offsets_of(records))
        self.keys += map(KEY, records)
        self.values += map(VALUE, records)
        self.timestamps += _timestamps(records)
        if with_headers:
            self.headers += map(HEADERS, records)
        self.size += total_bytes(records)

    def columns(self) -> Columns:
        """What was added."""
        return Columns(
            self.positions,
            self.keys,
            self.values,
            self.timestamps,
            self.headers if any(self.headers) else None,
            self.timestamp_type,
        )


def _timestamps(records: Sequence[Any]) -> Iterable[int | None]:
    found = [*map(TIMESTAMP, records)]
    if NO_TIMESTAMP not in found:
        return found
    return [None if timestamp == NO_TIMESTAMP else timestamp for timestamp in found]


def _joined(before: Sequence[int], after: Sequence[int]) -> Sequence[int]:
    """A range as long as both are, and meet."""
    if not before:
        return after
    if isinstance(before, range) and isinstance(after, range) and before.stop == after.start:
        return range(before.start, after.stop)
    joined: list[int] = before if isinstance(before, list) else list(before)
    joined.extend(after)  # in place: thousands of batches with gaps would cost quadratic time
    return joined


@contextmanager
def collector_off() -> Iterator[None]:
    """Looking for cycles among records that live for a moment costs as much as making them."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def _offsets_of(records: Sequence[Any]) -> Sequence[int]:
    """A range, unless there are gaps."""
    first, last = records[0].offset, records[-1].offset
    if last - first + 1 == len(records):
        return range(first, last + 1)
    return list(map(OFFSET, records))
