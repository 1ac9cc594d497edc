"""The live chunks of one assignment, by index: see `consumer_sdk.trackers.chunks`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from operator import lt
from typing import Any

from consumer_sdk.records import Position
from consumer_sdk.records.ranges import Span
from consumer_sdk.trackers.chunks import BITS, DONE, FREE, Chunk, kept, live_from

__all__ = ["Window", "is_ascending", "is_consecutive"]


LASTING = 2
"""Behind so many chunks, what is unsettled is taken to stay: most leaves long before."""


def is_consecutive(indices: Sequence[int]) -> bool:
    """``indices`` are a whole range: also inside, since a batch may hold retries out of order."""
    if not indices or indices[-1] - indices[0] != len(indices) - 1:
        return False
    if isinstance(indices, range):
        return True
    found = indices if type(indices) is list else list(indices)
    return found == list(range(indices[0], indices[-1] + 1))


def is_ascending(positions: Sequence[Position]) -> bool:
    """Each lies above the one before."""
    return all(map(lt, positions, islice(positions, 1, None)))


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

    # -- minting --------------------------------------------------------------------------

    def _append(self, number: int, previous: Chunk | None) -> Chunk:
        chunk = self.chunks[number] = Chunk(number, self.capacity, previous)
        return chunk

    def mint(self, positions: Sequence[Position], size: int, state: int, now: float) -> int:
        """Indices for ``positions`` of ``size`` bytes in all, in ``state``; returns the first."""
        first, done, count = self.minted, 0, len(positions)
        while done < count:
            tail = self.tail if self.tail.count < self.capacity else self._grow()
            part = positions[done : done + self.capacity - tail.count]
            tail.add(part, state, size * len(part) // count, now)
            done += len(part)
        self.minted += count
        return first

    def _grow(self) -> Chunk:
        old = self.tail
        new = self._append(old.number + 1, old)
        old.following = self.tail = new
        old.is_cut = old.count < self.capacity
        if not old.left:
            self.retire(old)
        older = self.chunks.get(new.number - LASTING)
        if older is not None:
            older.keep_natives()
        return new

    def mint_late(self, positions: Sequence[Position], size: int, state: int, now: float) -> int:
        """Like `mint`, for records that lie below others which came before them; in any order."""
        if self.tail.count:
            self._grow()
        first = self.tail.number << self.bits
        for start in range(0, len(positions), self.capacity):
            part = positions[start : start + self.capacity]
            self.tail.is_late = True
            self.tail.add(part, state, size * len(part) // len(positions), now)
            self._grow()
        self.minted = self.tail.number << self.bits
        return first

    def retire(self, chunk: Chunk) -> None:
        """Unlinks a chunk with nothing unsettled; the tail stays, since it may grow."""
        following = chunk.following
        if following is None:
            return
        spans = [span for span in (chunk.gap, chunk.span, following.gap) if span is not None]
        following.gap = (spans[0][0], spans[-1][1]) if spans else None
        if chunk.previous is None:
            self.head = following
            self._take_prefix(following)
        else:
            chunk.previous.following = following
        following.previous = chunk.previous
        del self.chunks[chunk.number]

    def _take_prefix(self, head: Chunk) -> None:
        """Nothing unsettled lies before the first chunk."""
        if head.gap is not None:
            self.prefix, head.gap = head.gap[1], None

    def reach(self, position: Position) -> None:
        """The settled prefix, if that is all there is, reaches up to ``position``.

        The records in between no longer exist; without this the watermark would move back.
        """
        tail = self.tail
        if self.first_unsettled() >= 0:
            return
        if not tail.count:  # behind records that came late
            self.prefix = position if self.prefix is None else max(self.prefix, position)
        elif position > tail.positions[tail.count - 1]:
            tail.stretch(position)

    # -- one record -----------------------------------------------------------------------

    def state(self, index: int) -> int:
        """What the record is doing; DONE for one that has left the window."""
        if not 0 <= index < self.minted:
            return FREE
        chunk = self.chunks.get(index >> self.bits)
        return DONE if chunk is None else chunk.states[index & self.mask]

    def position(self, index: int) -> Position:
        """The position of a live, unsettled record."""
        position: Position = self.chunks[index >> self.bits].positions[index & self.mask]
        return position

    def mark(self, index: int, state: int) -> None:
        """Changes the state of a live, unsettled record to another unsettled one."""
        self.chunks[index >> self.bits].states[index & self.mask] = state

    # -- many records ---------------------------------------------------------------------

    def parts(self, first: int, end: int) -> Iterator[tuple[Chunk | None, int, int]]:
        """The chunk (None: settled whole) and offsets of each part of ``first`` up to ``end``."""
        while first < end:
            stop = min(end, (first | self.mask) + 1)
            start = first & self.mask
            yield self.chunks.get(first >> self.bits), start, start + stop - first
            first = stop

    def set_natives(self, first: int, natives: Sequence[Any]) -> None:
        """Keeps the adapter's own handles of unsettled records from ``first`` on."""
        done = 0
        for chunk, start, stop in self.parts(first, first + len(natives)):
            part = natives[done : done + stop - start]
            done += stop - start
            assert chunk is not None  # noqa: S101 - its records are unsettled
            chunk.natives += [None] * (start - len(chunk.natives))  # of what was settled before
            chunk.natives += part

    def replace_native(self, index: int, native: Any) -> None:
        """Another delivery's handle is an unsettled record's from now on; both are for long."""
        natives, offset = self.chunks[index >> self.bits].natives, index & self.mask
        kept(natives[offset])
        natives[offset] = kept(native)

    def mark_all(self, indices: Sequence[int], state: int) -> None:
        """Like `mark`, for many records."""
        if not is_consecutive(indices):
            for index in indices:
                self.mark(index, state)
            return
        for chunk, start, stop in self.parts(indices[0], indices[-1] + 1):
            assert chunk is not None  # noqa: S101 - its records are unsettled
            chunk.states[start:stop] = bytes((state,)) * (stop - start)

    def count(self, states: Sequence[int], first: int, end: int) -> int:
        """How many of the records from ``first`` up to ``end`` are in one of ``states``."""
        found = 0
        for chunk, start, stop in self.parts(first, end):
            if chunk is not None:
                found += sum([chunk.states.count(state, start, stop) for state in states])
        return found

    def live(self) -> Iterator[Chunk]:
        """The live chunks, oldest first."""
        return live_from(self.head)

    def live_between(self, first: int, last: int) -> Iterator[Chunk]:
        """The live chunks with records from ``first`` to ``last``, oldest first.

        O(chunks in between, or all live ones, whichever are fewer).
        """
        numbers = range(first >> self.bits, (last >> self.bits) + 1)
        if len(numbers) <= len(self.chunks):
            return filter(None, map(self.chunks.get, numbers))
        return (chunk for chunk in self.live() if chunk.number in numbers)

    def thin_out(self) -> None:
        """Forgets what nobody asks for any more of what is settled above a hole."""
        for chunk in self.live():
            chunk.thin_out()

    @property
    def unsettled(self) -> int:
        """Records minted and not settled."""
        if self.head is self.tail:  # as in most of many partitions, which are asked most often
            return self.tail.left
        return sum(chunk.left for chunk in self.live())

    @property
    def unsettled_bytes(self) -> int:
        """Their bytes, as if all records of a chunk were of the mean size."""
        if self.head is self.tail:
            return self.tail.unsettled_bytes
        return sum(chunk.unsettled_bytes for chunk in self.live())

    def first_unsettled(self) -> int:
        """The index of the first unsettled record; -1 if there is none."""
        for chunk in self.live():
            if chunk.left:
                return (chunk.number << self.bits) + chunk.first_unsettled()
        return -1

    def first_unsettled_position(self) -> Position | None:
        """Of the records whose positions ascend, the lowest that is unsettled; None: there is none."""
        for chunk in self.live():
            offset = -1 if chunk.is_late else chunk.first_unsettled()
            if offset >= 0:
                return chunk.positions[offset]
        return None

    def age(self, index: int, now: float) -> float:
        """Seconds since a live record was tracked."""
        return now - self.chunks[index >> self.bits].tracked_at(index & self.mask)

    # -- positions of a log ---------------------------------------------------------------

    def watermark(self) -> Position | None:
        """The last position of the settled prefix, without looking beyond it."""
        prefix, head = self.prefix, self.head
        while head.is_late and head.following is not None:
            head = head.following
            prefix = prefix if head.gap is None else head.gap[1]
        offset = head.first_unsettled()
        settled = head.count if offset < 0 else offset
        return head.positions[settled - 1] if settled else prefix

    def settled_spans(self) -> tuple[Position | None, list[Span]]:
        """The watermark, and the settled spans above it in order.

        Neighbours in arrival order are one span, also across chunks, since no record that this
        epoch has seen lies between them.
        """
        if self.head is self.tail and not self.tail.left:  # nothing is unsettled, as in most
            self.tail.thin_out()
            return self.watermark(), []
        spans: list[Span] = [(None, self.prefix)]
        is_joined = True  # the last span reaches up to the record looked at
        for chunk in self.live():
            if chunk.gap is not None:
                _join(spans, chunk.gap) if is_joined else spans.append(chunk.gap)
                is_joined = True
            if chunk.count and not chunk.is_late:
                found = chunk.spans()
                if is_joined and chunk.states[0] == DONE:
                    _join(spans, found[0])
                    spans += found[1:]
                else:
                    spans += found
                is_joined = chunk.states[chunk.count - 1] == DONE
        return spans[0][1], spans[1:]

    def find(self, positions: Sequence[Position]) -> list[int]:
        """The indices of unsettled records by ascending positions of a log; -1 for others."""
        found, chunk = [], _in_line(self.head)
        assert chunk is not None  # noqa: S101 - the tail is in line
        for position in positions:
            while (
                (after := _in_line(chunk.following))
                and after.count
                and after.positions[0] <= position
            ):
                chunk = after
            offset = chunk.offset_of(position)
            is_unsettled = offset >= 0 and chunk.states[offset] != DONE
            found.append((chunk.number << self.bits) + offset if is_unsettled else -1)
        return found


def _in_line(chunk: Chunk | None) -> Chunk | None:
    """``chunk``, or the first after it whose positions ascend."""
    while chunk is not None and chunk.is_late:
        chunk = chunk.following
    return chunk


def _join(spans: list[Span], span: Span) -> None:
    spans[-1] = (spans[-1][0], span[1])
