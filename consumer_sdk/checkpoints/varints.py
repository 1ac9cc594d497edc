"""Rows of whole numbers as bytes: differences from row to row, each in as few bytes as it needs.

A difference is zigzag-coded (0, -1, 1, -2 … are 0, 1, 2, 3 …, as in Protocol Buffers). Its first
byte tells its length, as in SQLite 4: large ones are then written and read in one step, and none
can be longer than 34 bytes.

==========  =====================================================
first byte  value
==========  =====================================================
0-191       the byte
192-223     192 + 256 · (the byte - 192) + the next byte
224-255     the next (the byte - 222) bytes, the highest first
==========  =====================================================

Each number has one form; any other is refused, so that what is read is written alike.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import accumulate, chain
from operator import sub

__all__ = ["RowReader", "append_pairs", "append_rows", "row_ends"]

ONE = 192
"""Values below it take one byte, which is also the first byte of longer ones."""
LONG = 224
TWO = ONE + 256 * (LONG - ONE)
"""Values below it take two bytes."""
HEADER = LONG - 2
"""Taken off the first byte of a long number, it leaves how many bytes follow."""
LONGEST = 255 - HEADER


def append_rows(out: bytearray, rows: Sequence[Sequence[int]], base: Sequence[int]) -> None:
    """Appends what each row adds to the one before, column by column.

    Args:
        out: appended to.
        rows: each as long as ``base``.
        base: what the first row is a difference to.

    Raises:
        ValueError, TypeError, AttributeError: the rows are no such rows, or a number takes more
            than 33 bytes.
    """
    if set(map(len, rows)) - {len(base)}:
        raise ValueError(f"rows of other than {len(base)} numbers")
    numbers = list(chain(base, chain.from_iterable(rows)))
    append = out.append
    for added in map(sub, numbers[len(base) :], numbers):
        value = added + added if added >= 0 else -added - added - 1
        if value < ONE:
            append(value)
        else:
            out += _longer(value)


def append_pairs(out: bytearray, pairs: Iterable[tuple[int, int]], base: int) -> None:
    """`append_rows` of rows of one number, two at a time, in a quarter of its time.

    That is where they ascend in small steps.
    """
    append = out.append
    for first, last in pairs:
        gap, run = first - base, last - first
        if 0 <= gap < ONE // 2 and 0 <= run < ONE // 2:
            append(gap + gap)
            append(run + run)
        else:
            out += _number(gap) + _number(run)
        base = last


def _number(added: int) -> bytes:
    value = added + added if added >= 0 else -added - added - 1
    return bytes((value,)) if value < ONE else _longer(value)


def _longer(value: int) -> bytes:
    if value < TWO:
        return bytes((ONE + (value - ONE >> 8), value - ONE & 255))
    size = (value.bit_length() + 7) // 8
    if size > LONGEST:
        raise ValueError(f"a number of more than {8 * LONGEST} bits")
    return bytes((HEADER + size,)) + value.to_bytes(size)


def row_ends(data: bytes, stride: int) -> list[int]:
    """Where rows of ``stride`` numbers end in ``data``; a 0 first, for none of them."""
    ends, at = [0], 0
    while at < len(data):
        for _ in range(stride):
            at += _size(data[at])
        ends.append(at)
    return ends


def _size(head: int) -> int:
    if head < LONG:
        return 1 if head < ONE else 2
    return 1 + head - HEADER


class RowReader:
    """Reads rows back.

    Args:
        data: all of them, and nothing else.

    Raises:
        ValueError: the last number is cut off, or one is longer than it needs to be.
    """

    def __init__(self, data: bytes) -> None:
        self._numbers = _read(data)
        self._at = 0

    @property
    def left(self) -> int:
        """Numbers that were not taken yet."""
        return len(self._numbers) - self._at

    def take(self, count: int | None, base: Sequence[int]) -> list[tuple[int, ...]]:
        """The next ``count`` rows; all that are left for None.

        Raises:
            ValueError: there are not so many, or the last one is cut off.
        """
        wanted = self.left if count is None else count * len(base)
        if wanted > self.left or wanted % len(base):
            raise ValueError("a row that is cut off")
        numbers = self._numbers[self._at : self._at + wanted]
        self._at += wanted
        columns = (accumulate(numbers[i :: len(base)], initial=base[i]) for i in range(len(base)))
        return list(zip(*columns, strict=True))[1:]


def _read(data: bytes) -> list[int]:
    numbers = []
    at, end = 0, len(data)
    while at < end:
        value = data[at]
        start, at = at, at + 1
        if value >= ONE:
            at = start + _size(value)
            if at > end:
                raise ValueError("a number that is cut off")
            value = _read_longer(value, data[start + 1 : at])
        numbers.append(value >> 1 ^ -(value & 1))
    return numbers


def _read_longer(head: int, rest: bytes) -> int:
    value = int.from_bytes(rest)
    if head < LONG:
        return ONE + (head - ONE << 8) + value
    if value < TWO or not rest[0]:
        raise ValueError("a number that is longer than it needs to be")
    return value
