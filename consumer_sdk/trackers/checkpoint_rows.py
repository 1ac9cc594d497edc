"""What a checkpoint says, as rows of whole numbers (`varints`), within a size budget.

Layout: a row of flags, the numbers in a position and the count of ranges; the watermark and the
resume position, where there; both ends of each range; then, ascending, each attempt's position
with its count and its due time in milliseconds. A position that is a whole number is a row of one.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from itertools import chain, pairwise

from consumer_sdk.records import Checkpoint, Position
from consumer_sdk.trackers.varints import RowReader, append_pairs, append_rows, row_ends

__all__ = ["MOST_PARTS", "read_body", "write_body"]

ENDED, WATERMARK, RESUME = 1, 2, 4
FLAGS = range(8)
MOST_PARTS = 8
"""Numbers in a position: Kinesis has two, Pulsar three. Arity 0 is a number by itself."""
ARITIES = range(MOST_PARTS + 1)
MOST_MILLISECONDS = 10**15
"""Due times are cut to this: 31 000 years, and still exact as a float of seconds."""


def write_body(checkpoint: Checkpoint, room: int) -> tuple[bytes, int]:
    """The checkpoint's rows but for its identity, and how many of its ranges they hold.

    Args:
        checkpoint: what to write.
        room: bytes that they may take. The first rows stay, whatever they take.

    Raises:
        AttributeError, TypeError, ValueError: positions are not alike, or not whole numbers.
    """
    arity = _arity(checkpoint)
    kept = len(checkpoint.ranges)
    head = _head(checkpoint, arity, kept)
    room = max(room - len(head), 0)
    ranges, attempts = _ranges(checkpoint, arity, room), _attempts(checkpoint, arity, room)
    if len(ranges) + len(attempts) > room:
        kept, ranges, attempts = _cut(checkpoint, arity, room, ranges, attempts)
        head = _head(checkpoint, arity, kept)
    return head + ranges + attempts, kept


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


def _anchor(checkpoint: Checkpoint, arity: int) -> tuple[int, ...]:
    """What the first range and the first attempt are differences to."""
    return [_zero(arity), *_rows(_marks(checkpoint), arity)][-1]


def _head(checkpoint: Checkpoint, arity: int, ranges: int) -> bytes:
    """What no budget cuts."""
    flags = ENDED if checkpoint.ended else 0
    flags |= 0 if checkpoint.watermark is None else WATERMARK
    flags |= 0 if checkpoint.resume is None else RESUME
    out = bytearray()
    append_rows(out, [(flags, arity, ranges)], (0, 0, 0))
    append_rows(out, _rows(_marks(checkpoint), arity), _zero(arity))
    return bytes(out)


def _ranges(checkpoint: Checkpoint, arity: int, room: int) -> bytes:
    """The lowest ranges: as many as might fit, and one, so that it shows if they do not."""
    lowest = checkpoint.ranges[: room // (2 * max(arity, 1)) + 1]
    anchor = _anchor(checkpoint, arity)
    out = bytearray()
    if arity:
        append_rows(out, list(chain.from_iterable(lowest)), anchor)
    else:
        append_pairs(out, lowest, anchor[0])
    return bytes(out)


def _attempts(checkpoint: Checkpoint, arity: int, room: int) -> bytes:
    """The lowest attempts, as many as might fit, and one."""
    positions = sorted(checkpoint.attempts)[: room // (max(arity, 1) + 2) + 1]
    tried = [checkpoint.attempts[position] for position in positions]
    rows = [
        (*row, failures, _milliseconds(due))
        for row, (failures, due) in zip(_rows(positions, arity), tried, strict=True)
    ]
    out = bytearray()
    append_rows(out, rows, (*_anchor(checkpoint, arity), 0, 0))
    return bytes(out)


def _milliseconds(due: float) -> int:
    return round(max(min(due * 1000, MOST_MILLISECONDS), -MOST_MILLISECONDS))


def _cut(
    checkpoint: Checkpoint, arity: int, room: int, ranges: bytes, attempts: bytes
) -> tuple[int, bytes, bytes]:
    """The lowest ranges that fit with all attempts below them, then attempts up to the next."""
    tried, parts = sorted(checkpoint.attempts), max(arity, 1)
    range_ends, attempt_ends = row_ends(ranges, 2 * parts), row_ends(attempts, parts + 2)

    def below(at: int) -> int:
        dropped = checkpoint.ranges[at : at + 1]
        return bisect_left(tried, dropped[0][0]) if dropped else len(tried)

    def size(kept: int) -> int:
        tries = below(kept - 1) if kept else 0
        return room + 1 if tries >= len(attempt_ends) else range_ends[kept] + attempt_ends[tries]

    kept = bisect_right(range(len(range_ends)), room, key=size) - 1
    tries = min(below(kept), bisect_right(attempt_ends, room - range_ends[kept]) - 1)
    return kept, ranges[: range_ends[kept]], attempts[: attempt_ends[tries]]


def read_body(data: bytes, identity: str | None) -> Checkpoint:
    """Reads what `write_body` wrote; its fields may contradict one another.

    Raises:
        ValueError: ``data`` is nothing that it writes.
    """
    reader = RowReader(data)
    ((flags, arity, count),) = reader.take(1, (0, 0, 0))
    if flags not in FLAGS or arity not in ARITIES or count < 0 or (arity and not reader.left):
        raise ValueError(f"flags {flags}, positions of {arity} numbers, {count} ranges")
    present = [bool(flags & WATERMARK), bool(flags & RESUME)]
    marks = reader.take(sum(present), _zero(arity))
    anchor = [_zero(arity), *marks][-1]
    ends = _positions(reader.take(2 * count, anchor), arity)
    attempts = _read_attempts(reader.take(None, (*anchor, 0, 0)), arity)
    found = iter(_positions(marks, arity))
    watermark, resume = (next(found) if is_present else None for is_present in present)
    return Checkpoint(
        watermark=watermark,
        resume=resume,
        ranges=tuple(zip(ends[::2], ends[1::2], strict=True)),
        attempts=attempts,
        ended=bool(flags & ENDED),
        identity=identity,
    )


def _positions(rows: Iterable[tuple[int, ...]], arity: int) -> list[Position]:
    return list(rows) if arity else [row[0] for row in rows]


def _read_attempts(rows: list[tuple[int, ...]], arity: int) -> dict[Position, tuple[int, float]]:
    positions = _positions((row[:-2] for row in rows), arity)
    if any(after <= before for before, after in pairwise(positions)):
        raise ValueError("attempts out of order")
    if any(abs(row[-1]) > MOST_MILLISECONDS for row in rows):
        raise ValueError("a due time that is no time")
    tried = [(row[-2], row[-1] / 1000) for row in rows]
    return dict(zip(positions, tried, strict=True))
