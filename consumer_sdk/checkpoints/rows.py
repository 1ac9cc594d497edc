"""What a checkpoint says, as rows of whole numbers (`varints`), within a size budget.

Layout: a row of flags, the numbers in a position and the count of ranges; the watermark and the
resume position, where there; when it was written, where there; both ends of each range; then,
ascending, each attempt's position with its count and its due time. Times are in milliseconds. A
position that is a whole number is a row of one.

Where a bit set of the ranges is smaller by `SAVES` bytes (where every second or third record is settled
it takes a quarter of what pairs of numbers take), its first position is there in place of the
ranges' ends, and the bits come behind all rows, with their length in two bytes.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from itertools import accumulate, chain, pairwise
from operator import itemgetter
from typing import NamedTuple

from consumer_sdk.checkpoints.forms import fit, saved_deliveries
from consumer_sdk.checkpoints.varints import RowReader, append_pairs, append_rows, row_ends
from consumer_sdk.records import Checkpoint, Position
from consumer_sdk.records.ranges import Span

__all__ = ["MOST_PARTS", "has_new_rows", "read_bit_set", "read_body", "write_body"]

ENDED, WATERMARK, RESUME, WRITTEN, BITS = 1, 2, 4, 8, 16
FLAGS = range(32)
OLD_FLAGS = range(8)
"""Of versions 1 and 2."""
MOST_PARTS = 8
"""Numbers in a position: Kinesis has two, Pulsar three. Arity 0 is a number by itself."""
ARITIES = range(MOST_PARTS + 1)
_FIRST = itemgetter(0)
LENGTH = 2
"""Bytes that say how long a bit set is."""
MOST_BITS = 0xFFFF
"""Bytes of a bit set. Read back, each can become four ranges, which take some 500."""
NEVER = 1 << 60
"""The size of a bit set that is longer."""
SAVES = 64
"""Bytes. For less, the form is written that releases before this one can read too."""
MOST_MILLISECONDS = 10**15
"""Due times are cut to this: 31 000 years, and still exact as a float of seconds."""


class Body(NamedTuple):
    """What was written, and how many of the lowest ranges and attempts are in it."""

    data: bytes
    ranges: int
    attempts: int


def write_body(checkpoint: Checkpoint, room: int) -> Body:
    """The checkpoint's rows but for its identity and application.

    Args:
        checkpoint: what to write.
        room: bytes that they may take. The first rows stay, whatever they take.

    Raises:
        AttributeError, TypeError, ValueError: positions are not alike, or not whole numbers.
    """
    arity, anchor = _arity(checkpoint), _anchor(checkpoint)
    kept, tries = len(checkpoint.ranges), len(checkpoint.attempts)
    room = max(room - len(_head(checkpoint, arity, kept)), 0)
    lowest = checkpoint.ranges[: _may_fit(checkpoint.ranges, arity, room)]
    rows, bits = _ranges(lowest, arity, anchor) if len(lowest) == kept else (b"", b"")
    attempts = _attempts(checkpoint, arity, room)
    if len(lowest) < kept or len(rows) + len(bits) + len(attempts) > room:
        ends = row_ends(attempts, max(arity, 1) + 2)
        sizes = _sizes(lowest, arity, anchor, room)
        kept, tries = fit(sizes, saved_deliveries(lowest), ends, _worths(checkpoint, ends), room)
        rows, bits = _ranges(lowest[:kept], arity, anchor)
        attempts = attempts[: ends[tries]]
    if arity and not (kept or tries or _marks(checkpoint)):
        arity = 0  # nothing that has a position was kept
    head = _head(checkpoint, arity, kept, BITS if bits else 0)
    return Body(head + rows + attempts + bits, kept, tries)


def _arity(checkpoint: Checkpoint) -> int:
    some = [*_marks(checkpoint), *checkpoint.attempts, *chain(*checkpoint.ranges[:1])]
    return max(map(_parts, some), default=0)


def _parts(position: Position) -> int:
    if type(position) is int:
        return 0
    if type(position) is tuple and 0 < len(position) <= MOST_PARTS:
        return len(position)
    raise TypeError(f"a position such as {position!r:.80}")


def _marks(checkpoint: Checkpoint) -> list[Position]:
    return [each for each in (checkpoint.watermark, checkpoint.resume) if each is not None]


def _rows(positions: Iterable[Position], arity: int) -> list[tuple[int, ...]]:
    return list(positions) if arity else [(position,) for position in positions]


def _zero(arity: int) -> tuple[int, ...]:
    return (0,) * max(arity, 1)


def _anchor(checkpoint: Checkpoint) -> tuple[int, ...]:
    """What the first range and the first attempt are differences to."""
    arity = _arity(checkpoint)
    return [_zero(arity), *_rows(_marks(checkpoint), arity)][-1]


def _head(checkpoint: Checkpoint, arity: int, ranges: int, form: int = 0) -> bytes:
    """What no budget cuts."""
    flags = form | (ENDED if checkpoint.ended else 0)
    flags |= 0 if checkpoint.watermark is None else WATERMARK
    flags |= 0 if checkpoint.resume is None else RESUME
    flags |= 0 if checkpoint.written is None else WRITTEN
    out = bytearray()
    append_rows(out, [(flags, arity, ranges)], (0, 0, 0))
    append_rows(out, _rows(_marks(checkpoint), arity), _zero(arity))
    if checkpoint.written is not None:
        append_rows(out, [(_milliseconds(checkpoint.written),)], (0,))
    return bytes(out)


# -- ranges -----------------------------------------------------------------------------------


def _may_fit(ranges: Sequence[Span], arity: int, room: int) -> int:
    """How many of the lowest might fit, and one, so that it shows if they do not."""
    pairs = room // (2 * max(arity, 1)) + 1
    if arity or len(ranges) <= pairs:
        return pairs
    beyond = ranges[0][0] + 8 * min(room, MOST_BITS)
    return max(pairs, bisect_left(ranges, beyond, key=_FIRST) + 1)


def _ranges(lowest: Sequence[Span], arity: int, anchor: tuple[int, ...]) -> tuple[bytes, bytes]:
    """The smaller form: rows, and what comes behind the attempts."""
    if arity or not lowest:
        return _pairs(lowest, arity, anchor), b""
    pairs, most = None, _bit_set_sizes(lowest[-1:], lowest[0][0], anchor[0])[0] + SAVES
    if most > 2 * len(lowest):  # else pairs are larger in any case
        pairs = _pairs(lowest, arity, anchor)
    if pairs is None or most <= len(pairs):
        bits = bit_set(lowest)
        if bits is not None:
            return _start(lowest[0][0], anchor[0]), bits + len(bits).to_bytes(LENGTH)
    return _pairs(lowest, arity, anchor) if pairs is None else pairs, b""


def _pairs(lowest: Sequence[Span], arity: int, anchor: tuple[int, ...]) -> bytes:
    """Both ends of each range."""
    out = bytearray()
    if arity:
        append_rows(out, list(chain.from_iterable(lowest)), anchor)
    else:
        append_pairs(out, lowest, anchor[0])
    return bytes(out)


def _start(first: int, anchor: int) -> bytes:
    """The position of a bit set's first bit."""
    out = bytearray()
    append_rows(out, [(first,)], (anchor,))
    return bytes(out)


def _bit_set_sizes(ranges: Iterable[Span], first: int, anchor: int) -> list[int]:
    """For each range, what a bit set up to it takes; too much where it would be too long."""
    beside = len(_start(first, anchor)) + LENGTH
    sizes = ((last - first) // 8 + 1 for _, last in ranges)
    return [size + beside if size <= MOST_BITS else NEVER for size in sizes]


def _sizes(lowest: Sequence[Span], arity: int, anchor: tuple[int, ...], room: int) -> list[int]:
    """What the n lowest ranges take in the smaller form; at least ``room`` if they do not fit."""
    parts = max(arity, 1)
    pairs = row_ends(_pairs(lowest[: room // (2 * parts) + 1], arity, anchor), 2 * parts)
    if arity or any(after[0] - before[1] < 2 for before, after in pairwise(lowest)):  # noqa: PLR2004
        return pairs
    pairs += range(2 * len(pairs), 2 * len(lowest) + 1, 2)
    bits = _bit_set_sizes(lowest, lowest[0][0], anchor[0]) if lowest else []
    return [0, *(b if b + SAVES <= p else p for b, p in zip(bits, pairs[1:], strict=True))]


# -- attempts ---------------------------------------------------------------------------------


def _attempts(checkpoint: Checkpoint, arity: int, room: int) -> bytes:
    """The lowest attempts, as many as might fit, and one."""
    positions = sorted(checkpoint.attempts)[: room // (max(arity, 1) + 2) + 1]
    tried = [checkpoint.attempts[position] for position in positions]
    rows = [
        (*row, failures, _milliseconds(due))
        for row, (failures, due) in zip(_rows(positions, arity), tried, strict=True)
    ]
    out = bytearray()
    append_rows(out, rows, (*_anchor(checkpoint), 0, 0))
    return bytes(out)


def _milliseconds(due: float) -> int:
    return round(max(min(due * 1000, MOST_MILLISECONDS), -MOST_MILLISECONDS))


def _worths(checkpoint: Checkpoint, ends: Sequence[int]) -> list[int]:
    """Deliveries that the n lowest attempts count, for each of their ends."""
    positions = sorted(checkpoint.attempts)[: len(ends) - 1]
    return list(accumulate((checkpoint.attempts[p][0] for p in positions), initial=0))


# -- reading ----------------------------------------------------------------------------------


def has_new_rows(body: bytes) -> bool:
    """The body is none of versions 1 and 2: its first number, the flags, says so."""
    return len(body) > 0 and body[0] >> 1 not in OLD_FLAGS


def read_body(data: bytes, identity: str | None) -> Checkpoint:
    """Reads what `write_body` wrote; its fields may contradict one another.

    Raises:
        ValueError: ``data`` is nothing that it writes.
    """
    rows, bits = _split(data)
    reader = RowReader(rows)
    ((flags, arity, count),) = reader.take(1, (0, 0, 0))
    if flags not in FLAGS or arity not in ARITIES or count < 0:
        raise ValueError(f"flags {flags}, positions of {arity} numbers, {count} ranges")
    present = [bool(flags & WATERMARK), bool(flags & RESUME)]
    marks = reader.take(sum(present), _zero(arity))
    written = reader.take(bool(flags & WRITTEN), (0,))
    anchor = [_zero(arity), *marks][-1]
    ranges = _read_ranges(reader, count, arity, anchor, bits)
    attempts = _read_attempts(reader.take(None, (*anchor, 0, 0)), arity)
    if arity and not (marks or ranges or attempts):
        raise ValueError(f"positions of {arity} numbers, and none is there")
    found = iter(_positions(marks, arity))
    watermark, resume = (next(found) if is_present else None for is_present in present)
    return Checkpoint(
        watermark=watermark,
        resume=resume,
        ranges=tuple(ranges),
        attempts=attempts,
        ended=bool(flags & ENDED),
        identity=identity,
        written=_time(written[0][0]) if written else None,
    )


def _split(data: bytes) -> tuple[bytes, bytes | None]:
    """The rows, and the bit set behind them, if the first number says that there is one."""
    if not (has_new_rows(data) and data[0] >> 1 in FLAGS and data[0] >> 1 & BITS):
        return data, None
    end = len(data) - LENGTH
    start = end - int.from_bytes(data[end:])
    if not 0 < start < end:
        raise ValueError("a bit set that is cut off")
    return data[:start], data[start:end]


def _read_ranges(
    reader: RowReader, count: int, arity: int, anchor: tuple[int, ...], bits: bytes | None
) -> list[Span]:
    if bits is None:
        ends = _positions(reader.take(2 * count, anchor), arity)
        return list(zip(ends[::2], ends[1::2], strict=True))
    if arity:
        raise ValueError(f"a bit set, and positions of {arity} numbers")
    ((first,),) = reader.take(1, anchor)
    ranges = read_bit_set(bits, first)
    if len(ranges) != count or not _ranges(ranges, arity, anchor)[1]:
        raise ValueError(f"a bit set of {len(ranges)} ranges instead of {count}, or a needless one")
    return ranges


def _positions(rows: Iterable[tuple[int, ...]], arity: int) -> list[Position]:
    return list(rows) if arity else [row[0] for row in rows]


def _read_attempts(rows: list[tuple[int, ...]], arity: int) -> dict[Position, tuple[int, float]]:
    positions = _positions((row[:-2] for row in rows), arity)
    if any(after <= before for before, after in pairwise(positions)):
        raise ValueError("attempts out of order")
    tried = [(row[-2], _time(row[-1])) for row in rows]
    return dict(zip(positions, tried, strict=True))


def _time(milliseconds: int) -> float:
    if abs(milliseconds) > MOST_MILLISECONDS:
        raise ValueError("milliseconds that are no time")
    return milliseconds / 1000


# -- ranges of whole numbers as a bit set: a bit for each position, the first range's first

RUN = re.compile("1+")


def bit_set(ranges: Sequence[Span]) -> bytes | None:
    """The bits; None where they would be read back as other ranges: two touch, or overlap."""
    first, last = ranges[0][0], ranges[-1][1]
    at = first
    parts: list[str] = []
    for start, end in ranges:
        parts += ("0" * (start - at), "1" * (end - start + 1))
        at = end + 1
    bits = "".join(parts)
    if len(bits) != last - first + 1 or bits.count("01") != len(ranges) - 1:
        return None
    size = -(-len(bits) // 8)
    return int(bits.ljust(8 * size, "0"), 2).to_bytes(size)


def read_bit_set(data: bytes, first: int) -> list[Span]:
    """The ranges of a bit set whose first bit stands for ``first``.

    Raises:
        ValueError: the first range does not begin there, or zeros follow the last one.
    """
    if not data or data[0] < 1 << 7 or not data[-1]:
        raise ValueError("a bit set that is longer than it needs to be")
    bits = f"{int.from_bytes(data):b}"
    return [(first + run.start(), first + run.end() - 1) for run in RUN.finditer(bits)]
