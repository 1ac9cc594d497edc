"""The window of live records: a byte for each, in chunks that vanish once they are settled.

Theory of operation. Indices are dense, so ``index >> BITS`` names a chunk and the low bits a
byte in it: settling a record is a dict look-up and a byte store. Live chunks form a linked
list; a full chunk with nothing unsettled is unlinked, and its span of positions is merged into
the ``gap`` of the next one. So memory is O(unsettled chunks), whatever lies between them. (An
insertion-ordered dict popped at the front goes quadratic in CPython; sorted sets are 5-10 times
slower than this.)
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from consumer_sdk.records import Position

__all__ = ["BITS", "DEAD", "DONE", "FREE", "MARKED", "MASK", "OPEN", "RETRY", "Chunk", "Window"]

BITS = 10
MASK = (1 << BITS) - 1

FREE, OPEN, MARKED, RETRY, DEAD, DONE = range(6)
"""What a record is doing. OPEN: in delivery, with no side entry, so that settling it is a byte
store. MARKED: in delivery, with failures or a deadline. RETRY: waits for its next delivery.
DEAD: waits for its dead letter. FREE: not minted. DONE: settled."""

STATES = ("free", "open", "open", "retrying", "dead-lettering", "settled")
SETTLED_RUN = re.compile(b"\x05+")
UNSETTLED = re.compile(b"[\x01-\x04]")
SIDE_ENTRY = re.compile(b"[\x02\x03]")
SETTLE = bytes([FREE, DONE, DONE, DONE, DEAD, DONE]) + bytes(range(6, 256))
"""For bytes.translate: what a cumulative ack makes of each state."""

Span = tuple[Position, Position]
"""Settled positions, first and last, inclusive."""


class Chunk:
    """Up to ``1 << bits`` consecutive records.

    Attributes:
        number: the chunk's indices start at ``number << bits``.
        states: a byte for each record.
        positions: of the records minted so far.
        left: how many of them are not settled.
        size: bytes of all of them.
        gap: the settled span between the previous live chunk and this one.
        times: (offset, monotonic seconds) of each tracked run that begins here.
    """

    __slots__ = (
        "_spans",
        "_spans_of",
        "following",
        "gap",
        "left",
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
        self.positions: list[Position] = []
        self.left = 0
        self.size = 0
        self.gap: Span | None = None
        self.times: list[tuple[int, float]] = []
        self.previous = previous
        self.following: Chunk | None = None
        self._spans: list[tuple[int, int]] = []
        self._spans_of = (-1, -1)

    def spans(self) -> list[tuple[int, int]]:
        """Offsets (first, end) of the settled stretches; cached until something changes."""
        key = (self.left, len(self.positions))
        if key != self._spans_of:
            self._spans = [match.span() for match in SETTLED_RUN.finditer(self.states)]
            self._spans_of = key
        return self._spans

    def first_unsettled(self) -> int:
        """The offset of the first unsettled record; -1 if there is none."""
        match = UNSETTLED.search(self.states) if self.left else None
        return match.start() if match else -1

    def tracked_at(self, offset: int) -> float:
        """When the record at ``offset`` was tracked."""
        return max((at for start, at in self.times if start <= offset), default=0.0)

    @property
    def unsettled_bytes(self) -> int:
        """Bytes of the unsettled records, as if all were of the mean size."""
        return self.size * self.left // len(self.positions) if self.left else 0


class Window:
    """The live chunks of one assignment.

    Args:
        bits: a chunk holds ``1 << bits`` records; a parameter so that tests can use tiny ones.
    """

    __slots__ = ("bits", "capacity", "chunks", "head", "mask", "minted", "prefix", "tail")

    def __init__(self, bits: int = BITS) -> None:
        self.bits = bits
        self.capacity = 1 << bits
        self.mask = self.capacity - 1
        self.chunks: dict[int, Chunk] = {}
        self.minted = 0
        self.prefix: Position | None = None
        """The last position of the settled prefix that has left the window."""
        self.head = self.tail = self._append(0, None)

    def _append(self, number: int, previous: Chunk | None) -> Chunk:
        chunk = self.chunks[number] = Chunk(number, self.capacity, previous)
        return chunk

    def mint(self, positions: list[Position], size: int, state: int, now: float) -> int:
        """Indices for ``positions``, all in ``state``; returns the first."""
        first, done, count = self.minted, 0, len(positions)
        while done < count:
            tail = self.tail
            start = len(tail.positions)
            if start == self.capacity:
                tail = self._grow()
                start = 0
            part = positions[done : done + self.capacity - start]
            tail.positions += part
            tail.states[start : start + len(part)] = bytes((state,)) * len(part)
            tail.left += len(part) if state != DONE else 0
            tail.size += size * len(part) // count
            tail.times.append((start, now))
            done += len(part)
        self.minted += count
        return first

    def _grow(self) -> Chunk:
        old = self.tail
        new = self._append(old.number + 1, old)
        old.following = self.tail = new
        if not old.left:
            self.retire(old)
        return new

    def retire(self, chunk: Chunk) -> None:
        """Unlinks a chunk with nothing unsettled; the tail stays, since it may grow."""
        following = chunk.following
        if following is None:
            return
        last = (following.gap or (None, chunk.positions[-1]))[1]
        if chunk.previous is None:
            self.prefix, self.head = last, following
            following.gap = None
        else:
            following.gap = ((chunk.gap or (chunk.positions[0], None))[0], last)
            chunk.previous.following = following
        following.previous = chunk.previous
        del self.chunks[chunk.number]

    def reach(self, position: Position) -> None:
        """The settled prefix, if that is all there is, reaches up to ``position``.

        The records in between no longer exist; without this the watermark would move back.
        """
        if self.first_unsettled() < 0 and position > self.tail.positions[-1]:
            self.tail.positions[-1] = position

    def live(self) -> Iterator[Chunk]:
        """The live chunks, oldest first."""
        chunk: Chunk | None = self.head
        while chunk is not None:
            yield chunk
            chunk = chunk.following

    def state(self, index: int) -> int:
        """What the record is doing; DONE for one that has left the window."""
        if not 0 <= index < self.minted:
            return FREE
        chunk = self.chunks.get(index >> self.bits)
        return DONE if chunk is None else chunk.states[index & self.mask]

    def count(self, state: int, first: int, end: int) -> int:
        """How many of the records from ``first`` up to ``end`` are in ``state`` (not DONE)."""
        found = 0
        while first < end:
            stop = min(end, (first | self.mask) + 1)
            if chunk := self.chunks.get(first >> self.bits):
                start = first & self.mask
                found += chunk.states.count(state, start, start + stop - first)
            first = stop
        return found

    def position(self, index: int) -> Position:
        """The position of a live record."""
        position: Position = self.chunks[index >> self.bits].positions[index & self.mask]
        return position

    def mark(self, index: int, state: int) -> None:
        """Changes the state of a live, unsettled record to another unsettled one."""
        self.chunks[index >> self.bits].states[index & self.mask] = state

    def settle(self, index: int) -> None:
        """Settles a live, unsettled record."""
        chunk = self.chunks[index >> self.bits]
        chunk.states[index & self.mask] = DONE
        chunk.left -= 1
        if not chunk.left:
            self.retire(chunk)

    def first_unsettled(self) -> int:
        """The index of the first unsettled record; -1 if there is none."""
        for chunk in self.live():
            offset = chunk.first_unsettled()
            if offset >= 0:
                return (chunk.number << self.bits) + offset
        return -1

    def watermark(self) -> Position | None:
        """The last position of the settled prefix, without looking beyond it."""
        positions = self.head.positions
        offset = self.head.first_unsettled()
        settled = len(positions) if offset < 0 else offset
        return positions[settled - 1] if settled else self.prefix

    def settled_spans(self) -> tuple[Position | None, list[Span]]:
        """The watermark, and the settled spans above it in order.

        Neighbours in arrival order are one span, also across chunks, since no record that this
        epoch has seen lies between them.
        """
        spans: list[list[Position]] = [[None, self.prefix]]
        is_joined = True  # the span before reaches up to the record looked at
        for chunk in self.live():
            if chunk.gap is not None:
                _extend(spans, chunk.gap[0], chunk.gap[1], join=is_joined)
                is_joined = True
            positions = chunk.positions
            for start, end in chunk.spans():
                join = is_joined and start == 0
                _extend(spans, positions[start], positions[end - 1], join=join)
            if positions:
                is_joined = chunk.states[len(positions) - 1] == DONE
        return spans[0][1], [(first, last) for first, last in spans[1:]]


def _extend(spans: list[list[Position]], first: Position, last: Position, *, join: bool) -> None:
    if join:
        spans[-1][1] = last
    else:
        spans.append([first, last])
