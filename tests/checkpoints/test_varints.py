"""Rows of numbers as bytes: what is written is read, and takes as few bytes as it says."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from consumer_sdk.checkpoints.varints import RowReader, append_pairs, append_rows, row_ends

LARGEST = 2**261
"""Two such numbers of opposite sign differ by as much as 264 bits hold, the sign included."""

NUMBERS = st.integers(-(10**6), 10**6) | st.integers(-LARGEST, LARGEST)


@st.composite
def tables(draw: st.DrawFn) -> tuple[list[tuple[int, ...]], tuple[int, ...]]:
    """Rows, and what the first is a difference to."""
    size = draw(st.integers(1, 4))
    row = st.tuples(*[NUMBERS] * size)
    return draw(st.lists(row, max_size=12)), draw(row)


def write(rows: list[tuple[int, ...]], base: tuple[int, ...]) -> bytes:
    """The rows as bytes."""
    out = bytearray()
    append_rows(out, rows, base)
    return bytes(out)


@given(tables(), st.integers(0, 12))
@example(([(-LARGEST,), (LARGEST,)], (LARGEST,)), 0)
def test_rows_are_read_back(
    table: tuple[list[tuple[int, ...]], tuple[int, ...]], count: int
) -> None:
    """Some first, then the rest; nothing is left."""
    rows, base = table
    reader = RowReader(write(rows, base))
    count = min(count, len(rows))

    assert reader.left == len(rows) * len(base)
    found = reader.take(count, base)
    found += reader.take(None, found[-1] if found else base)
    assert (found, reader.left) == (rows, 0)


@given(tables())
def test_ends_of_rows_are_where_shorter_tables_end(
    table: tuple[list[tuple[int, ...]], tuple[int, ...]],
) -> None:
    """So a table can be cut without being written again."""
    rows, base = table
    ends = row_ends(write(rows, base), len(base))

    assert ends == [len(write(rows[:count], base)) for count in range(len(rows) + 1)]


@given(st.lists(NUMBERS) | st.lists(st.integers(-100, 100)), st.integers(-9, 9))
@example([95, 190, 286, 382, 478, 574, 477, 380], 0)
@example([5, 4, 100, 101], 5)
def test_pairs_are_written_as_rows_are(numbers: list[int], base: int) -> None:
    """It is the same form, only faster."""
    pairs = list(zip(numbers[::2], numbers[1::2], strict=False))
    out = bytearray()
    append_pairs(out, pairs, base)

    assert bytes(out) == write([(number,) for pair in pairs for number in pair], (base,))


@pytest.mark.parametrize(
    "number, size",
    [
        (0, 1),
        (95, 1),
        (-96, 1),
        (96, 2),
        (-97, 2),
        (4191, 2),
        (-4192, 2),
        (4192, 3),
        (-4193, 3),
        (32767, 3),
        (32768, 4),
        (2**186, 25),
        (2**263 - 1, 34),
        (-(2**263), 34),
    ],
)
def test_number_takes_as_few_bytes_as_it_needs(number: int, size: int) -> None:
    """One up to 95, two up to 4 191, then one more than it has."""
    data = write([(number,)], (0,))

    assert len(data) == size
    assert RowReader(data).take(1, (0,)) == [(number,)]


@pytest.mark.parametrize("number", [2**263, -(2**263) - 1, 2**4000])
def test_number_that_is_too_large_is_refused(number: int) -> None:
    """No position has so many digits, and no reader has to take them."""
    with pytest.raises(ValueError, match="more than 264 bits"):
        write([(number,)], (0,))


@pytest.mark.parametrize("rows", [[(1, 2), (3,)], [(1, 2, 3), (4,)], [()]])
def test_rows_of_different_lengths_are_refused(rows: list[tuple[int, ...]]) -> None:
    """Also where the numbers add up to whole rows."""
    with pytest.raises(ValueError, match="rows of other than 2 numbers"):
        write(rows, (0, 0))


@pytest.mark.parametrize(
    "data, problem",
    [
        ("c0", "number that is cut off"),
        ("e0", "number that is cut off"),
        ("e020", "number that is cut off"),
        ("e1ffff", "number that is cut off"),
        ("e020bf", "longer than it needs"),
        ("e100ffff", "longer than it needs"),
        ("ff00" + 32 * "ff", "longer than it needs"),
        ("ff01" + 31 * "ff", "number that is cut off"),
        ("e02000", "longer than it needs"),
        ("05e0ff", "number that is cut off"),
    ],
)
def test_bytes_that_are_no_numbers_are_refused(data: str, problem: str) -> None:
    """Each number has one form: a torn or padded one is none."""
    with pytest.raises(ValueError, match=problem):
        RowReader(bytes.fromhex(data))


def test_smallest_of_each_length_is_read() -> None:
    """The edges between the forms are on the right side."""
    data = bytes.fromhex("bfc000dfffe020c0e1010000")

    assert RowReader(data).take(None, (0,)) == [(-96,), (0,), (-4192,), (0,), (32768,)]


@pytest.mark.parametrize("count", [3, 10**80, None])
def test_rows_that_are_not_there_are_refused(count: int | None) -> None:
    """Five numbers are two rows of two, and no third one, however many are asked for."""
    with pytest.raises(ValueError, match="row that is cut off"):
        RowReader(bytes(5)).take(count, (0, 0))


@given(st.binary(max_size=60))
def test_any_bytes_are_refused_or_written_alike(data: bytes) -> None:
    """Reading is the exact opposite of writing."""
    try:
        rows = RowReader(data).take(None, (0,))
    except ValueError:
        return
    assert write(rows, (0,)) == data
