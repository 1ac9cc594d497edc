"""The window of live records: a byte for each, in chunks that vanish once they are settled.

Theory of operation. Indices are dense, so ``index >> BITS`` names a chunk and the low bits a
byte in it: settling a record is a dict look-up and a byte store. Live chunks form a linked
list; a full chunk with nothing unsettled is unlinked, and its span of positions is merged into
the ``gap`` of the next one. A full chunk with little left forgets all positions but those that a
checkpoint may still need. So memory is O(unsettled + holes), whatever lies between them. (An
insertion-ordered dict popped at the front goes quadratic in CPython; sorted sets are 5-10 times
slower than this.)
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

from consumer_sdk.records import Position
from consumer_sdk.records.ranges import Span

__all__ = ["BITS", "DEAD", "DONE", "FREE", "MARKED", "OPEN", "RETRY", "Chunk", "kept"]

BITS = 10

FREE, OPEN, MARKED, RETRY, DEAD, DONE = range(6)
"""What a record is doing. OPEN: in delivery, with no side entry, so that settling it is a byte
store. MARKED: in delivery, with failures, a deadline or a native handle. RETRY: waits for its next
delivery. DEAD: waits for its dead letter. FREE: not minted. DONE: settled."""

STATES = ("free", "open", "open", "retrying", "dead-lettering", "settled")
SETTLED_RUN = re.compile(b"\x05+")
UNSETTLED = re.compile(b"[\x01-\x04]")
SIDE_ENTRY = re.compile(b"[\x02\x03]")
SETTLE = bytes([FREE, DONE, DONE, DONE, DEAD, DONE]) + bytes(range(6, 256))
"""For bytes.translate: what a cumulative ack makes of each state."""

SPARSE = 16
"""A full chunk keeps few positions when less than one in so many records is left: below that, a
dict of those is smaller than the positions themselves."""
GRAIN = 0.001
"""Seconds: runs tracked within this time count as tracked together."""


class Chunk:
    """Up to ``1 << bits`` consecutive records.

    Attributes:
        number: the chunk's indices start at ``number << bits``.
        states: a byte for each record.
        positions: by offset; of all records minted so far, or (sparse) of those that are not
            settled or at an edge of a settled stretch.
        natives: by offset; what the adapter wants back when a record is settled. None where that is
            nothing any more, and empty for brokers that do not ask.
        count: how many records were minted.
        left: how many of them are not settled.
        size: bytes of all of them.
        gap: the settled span between the previous live chunk and this one.
        times: (offset, monotonic seconds) of each tracked run that begins here.
        is_late: its records came later than others that lie above them; the spans of the others
            take no notice of it.
        is_cut: no more records are minted here, although there is room.
    """

    __slots__ = (
        "_spans",
        "_spans_of",
        "count",
        "following",
        "gap",
        "is_cut",
        "is_late",
        "left",
        "natives",
        "number",
        "positions",
        "previous",
        "size",
        "states",
        "times",
    )

    def __init__(self, number: int, capacity: int, previous: Chunk | None) -> None:
        self.number = number
        self.states = bytearray(capacity)
        self.positions: list[Position] | dict[int, Position] = []
        self.natives: list[Any] = []
        self.count = 0
        self.left = 0
        self.size = 0
        self.gap: Span | None = None
        self.is_late = self.is_cut = False
        self.times: list[tuple[int, float]] = []
        self.previous = previous
        self.following: Chunk | None = None
        self._spans: list[tuple[int, int]] = []
        self._spans_of: tuple[int, int] | None = None

    def add(self, positions: Sequence[Position], state: int, size: int, now: float) -> None:
        """Mints records of ``size`` bytes in all, in ``state``."""
        start = self.count
        self.positions += positions  # type: ignore[operator]  # a chunk with room is not sparse
        self.count = end = start + len(positions)
        self.states[start:end] = bytes((state,)) * len(positions)
        self.size += size
        if state != DONE:
            self.left += len(positions)
        if not self.times or now - self.times[-1][1] > GRAIN:
            self.times.append((start, now))

    def positions_of(self, start: int, stop: int) -> Sequence[Position]:
        """Of unsettled records."""
        at = self.positions
        return at[start:stop] if type(at) is list else [at[offset] for offset in range(start, stop)]

    def keep_natives(self) -> None:
        """What is left is here for long."""
        self.natives = [native if native is None else kept(native) for native in self.natives]

    def thin_out(self) -> None:
        """Forgets most positions, if few records are left."""
        if self._is_nearly_settled():
            self.spans()

    def spans(self) -> list[Span]:
        """The settled stretches; cached until something changes."""
        key = (self.left, self.count)
        if key != self._spans_of:
            at = self.positions
            if self.left:
                found = [match.span() for match in SETTLED_RUN.finditer(self.states)]
            else:  # and there is one record at least: nobody asks an empty chunk
                found = [(0, self.count)]
            self._spans = [(at[first], at[end - 1]) for first, end in found]
            self._spans_of = key
            if self._is_nearly_settled():
                self._forget_positions(found)
        return self._spans

    def _is_nearly_settled(self) -> bool:
        is_full = self.is_cut or self.count == len(self.states)
        return is_full and self.left * SPARSE <= self.count and type(self.positions) is list

    def _forget_positions(self, settled: list[tuple[int, int]]) -> None:
        """Keeps what later spans can begin or end with, whatever is settled next."""
        kept = {match.start() for match in UNSETTLED.finditer(self.states)}
        for first, end in settled:
            kept |= {first, end - 1}
        self.positions = {offset: self.positions[offset] for offset in sorted(kept)}

    @property
    def span(self) -> Span | None:
        """All of it, of a chunk that is settled whole; None where its positions are in no order."""
        return None if self.is_late else (self.positions[0], self.positions[self.count - 1])

    def stretch(self, position: Position) -> None:
        """The last record stands for everything up to ``position``; another one follows at once."""
        self.positions[self.count - 1] = position

    def first_unsettled(self) -> int:
        """The offset of the first unsettled record; -1 if there is none."""
        match = UNSETTLED.search(self.states) if self.left else None
        return match.start() if match else -1

    def unsettled(self) -> Iterator[tuple[Position, int]]:
        """Position and index of each unsettled record."""
        first = self.number * len(self.states)
        for match in UNSETTLED.finditer(self.states):
            yield self.positions[match.start()], first + match.start()

    def tracked_at(self, offset: int) -> float:
        """When the record at ``offset`` was tracked."""
        return max(at for start, at in self.times if start <= offset)

    def offset_of(self, position: Position) -> int:
        """The offset of a position in a log's chunk; -1 if it is not kept."""
        kept = self.positions
        offsets = range(self.count) if type(kept) is list else list(kept)
        low, high = 0, len(offsets)
        while low < high:
            middle = (low + high) // 2
            if kept[offsets[middle]] < position:
                low = middle + 1
            else:
                high = middle
        is_found = low < len(offsets) and kept[offsets[low]] == position
        return offsets[low] if is_found else -1

    @property
    def unsettled_bytes(self) -> int:
        """Bytes of the unsettled records, as if all were of the mean size."""
        return self.size * self.left // self.count if self.left else 0


def kept(native: Any) -> Any:
    """What to hold for long in a native handle's place: what its ``keep()`` returns, if it has one.

    A handle may be a message of the client's, and share memory with its neighbours.
    """
    keep = getattr(native, "keep", None)
    return native if keep is None else keep()


def live_from(chunk: Chunk | None) -> Iterator[Chunk]:
    """``chunk`` and the live ones after it."""
    while chunk is not None:
        yield chunk
        chunk = chunk.following
