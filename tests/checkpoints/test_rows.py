"""A checkpoint's rows within a size budget."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from consumer_sdk.checkpoints.forms import SHARE, saved_deliveries
from consumer_sdk.checkpoints.rows import SAVES, has_new_rows, read_bit_set, read_body, write_body
from consumer_sdk.records import Checkpoint
from tests.trackers.codec import checkpoints, rounded

HOLES = tuple((10 * i, 10 * i + 3) for i in range(1, 1001))


def size(checkpoint: Checkpoint) -> int:
    """Bytes of all of it."""
    return len(write_body(checkpoint, 10**6).data)


def cut(checkpoint: Checkpoint, ranges: int, attempts: int) -> Checkpoint:
    """With only the lowest of both."""
    lowest = sorted(checkpoint.attempts.items())[:attempts]
    return replace(checkpoint, ranges=checkpoint.ranges[:ranges], attempts=dict(lowest))


def worth(checkpoint: Checkpoint) -> int:
    """Deliveries that a restart does not repeat."""
    ranges = saved_deliveries(checkpoint.ranges)[-1]
    return ranges + sum(failures for failures, _ in checkpoint.attempts.values())


@given(checkpoints(), st.integers(0, 900))
def test_budget_keeps_the_lowest_and_as_many_as_fit(checkpoint: Checkpoint, room: int) -> None:
    """Of both; and nothing else that fits would save more deliveries, but for attempts' share."""
    data, ranges, attempts = write_body(checkpoint, room)
    found = read_body(data, None)

    assert len(data) <= max(room, size(cut(checkpoint, 0, 0)))
    kept = rounded(cut(checkpoint, ranges, attempts))
    assert found == replace(kept, identity=None, application=None)
    least = size(cut(checkpoint, 0, 0))
    spare = room - least - 2  # a count of ranges may be shorter
    of_ranges = [size(cut(checkpoint, n, 0)) - least for n in range(len(checkpoint.ranges) + 1)]
    of_attempts = [size(cut(checkpoint, 0, n)) - least for n in range(len(checkpoint.attempts) + 1)]
    better = [
        tries
        for (more, taken), (tries, added) in product(enumerate(of_ranges), enumerate(of_attempts))
        if taken + added <= spare and worth(cut(checkpoint, more, tries)) > worth(found)
    ]
    assert not better or of_attempts[max(better) + 1] <= (room - least) / SHARE


def test_few_attempts_stay_whatever_ranges_would_save() -> None:
    """Also those above the ranges that are dropped: their records come again in any case."""
    tried = {10 * i + 5: (1, 0.0) for i in range(1, 1001, 100)}
    data, kept, attempts = write_body(Checkpoint(5, 6, HOLES, tried), 1000)
    found = read_body(data, None)

    assert 990 < len(data) <= 1000
    assert (found.ranges, found.attempts, attempts) == (HOLES[:kept], tried, 10)


@pytest.mark.parametrize(
    "room, failures, width, ranges, attempts",
    [
        (400, 1, 1, 149, 31),  # a range of one record takes 2 bytes, an attempt 3
        (400, 2, 1, 2, 129),
        (400, 5, 4, 149, 31),
        (400, 7, 4, 2, 129),
        (3_000, 1, 1, 1_000, 330),
    ],
)
def test_what_saves_more_deliveries_has_room(
    room: int, failures: int, width: int, ranges: int, attempts: int
) -> None:
    """An attempt saves as many as it counts, a range its records; attempts have a share."""
    spans = tuple((90 * i, 90 * i + width - 1) for i in range(1, 1_001))
    tried = dict.fromkeys(range(10**6, 10**6 + 1_000), (failures, 0.0))
    _, *kept = write_body(Checkpoint(5, 6, spans, tried), room)

    assert kept == [ranges, attempts]


def test_no_room_at_all_leaves_watermark_and_resume() -> None:
    """They are what keeps records from being lost."""
    data, *kept = write_body(Checkpoint(5, 6, HOLES, {7: (1, 0.0)}, ended=True), -100)

    assert kept == [0, 0]
    assert read_body(data, None) == Checkpoint(5, 6, ended=True)


@pytest.mark.parametrize(
    "holes, apart, size", [(1000, 2, 250), (100_000, 2, 25_000), (1000, 95, 2_000)]
)
def test_hole_takes_two_bytes_or_its_bits(holes: int, apart: int, size: int) -> None:
    """The smaller form, in a log of whole numbers; the rest is a few bytes."""
    positions = range(10**9, 10**9 + holes * apart, apart)
    checkpoint = Checkpoint(10**9 - 2, 10**9 - 1, tuple((p, p) for p in positions))
    data = write_body(checkpoint, 10**6).data

    assert size < len(data) <= size + 16
    assert read_body(data, None) == checkpoint


def test_bit_set_that_saves_little_is_not_written() -> None:
    """Releases that do not know it read the rest; nor one that would become too many ranges."""
    for holes, is_new in ((38, False), (60, True), (300_000, False)):
        ranges = tuple((2 * i, 2 * i) for i in range(4, holes + 4))
        data = write_body(Checkpoint(5, 6, ranges), 10**6).data
        assert has_new_rows(data) == is_new
        assert read_body(data, None).ranges == ranges


def test_ranges_that_touch_have_no_bit_set() -> None:
    """They would come back as one."""
    ranges = (*((2 * i, 2 * i) for i in range(4, 200)), (399, 399))
    for room in (10**6, 200):
        data, kept, _ = write_body(Checkpoint(5, 6, ranges), room)
        found = read_body(data, None).ranges
        assert found == ranges[:kept]
    assert kept > 90


def test_budget_holds_more_of_the_bit_set() -> None:
    """Where not all fits; and what is sparse above it stays pairs."""
    dense = tuple((2 * i, 2 * i) for i in range(4, 4_000))
    sparse = tuple((10_000 * i, 10_000 * i) for i in range(1, 100))
    data, kept, _ = write_body(Checkpoint(5, 6, dense), 500)
    assert (kept, read_body(data, None).ranges) == (1_964, dense[:1_964])
    both = dense + sparse
    data, kept, _ = write_body(Checkpoint(5, 6, both), 1_100)
    assert (kept, read_body(data, None).ranges) == (len(dense), dense)


@given(st.binary(min_size=1, max_size=400), st.integers(0, 10**6), st.integers(0, 500))
def test_any_dense_ranges_are_read_back(bits: bytes, first: int, room: int) -> None:
    """In whichever form they are, whole and cut."""
    ranges = tuple(read_bit_set(b"\x80" + bits + b"\x01", first + 8))
    checkpoint = Checkpoint(first, first + 1, ranges, {first + 1: (2, 1.5)})
    for each in (10**6, room):
        data, kept, tries = write_body(checkpoint, each)
        assert read_body(data, None) == cut(checkpoint, kept, tries)
        assert len(data) <= max(each, size(cut(checkpoint, 0, 0)))
    assert len(write_body(checkpoint, 10**6).data) <= len(bits) + 30 + SAVES


@pytest.mark.parametrize(
    "due, read",
    [
        (1.2345, 1.234),
        (1.23456, 1.235),
        (-0.001, -0.001),
        (1_700_000_000.123, 1_700_000_000.123),
        (1e300, 1e12),
        (-1e300, -1e12),
        (float("inf"), 1e12),
    ],
)
def test_due_time_is_kept_to_the_millisecond(due: float, read: float) -> None:
    """Within 31 000 years; a longer delay is clamped when it is restored."""
    data = write_body(Checkpoint(5, 6, (), {6: (1, due)}), 100).data

    assert read_body(data, None).attempts == {6: (1, read)}


def test_what_cannot_fit_is_not_looked_at() -> None:
    """The cost is that of the budget, however many holes there are: these would be refused."""
    ranges = tuple((10 * i, 10 * i if i < 60 else 10.5) for i in range(1, 1000))
    attempts = {10 * i + 5: (1, 0.0 if i < 60 else float("nan")) for i in range(1, 1000)}

    assert write_body(Checkpoint(5, 6, ranges), 100).ranges == 47
    assert write_body(Checkpoint(5, 6, (), attempts), 100).attempts == 31
    for checkpoint in (Checkpoint(5, 6, ranges), Checkpoint(5, 6, (), attempts)):
        with pytest.raises((TypeError, ValueError)):
            write_body(checkpoint, 10_000)


@pytest.mark.parametrize("tried", range(1, 40))
def test_range_above_any_number_of_attempts_fits_with_all_of_them(tried: int) -> None:
    """Or in place of the top one; the lowest attempts stay."""
    attempts = dict.fromkeys(range(7, 7 + tried), (1, 0.0))
    checkpoint = Checkpoint(5, 6, ((1000, 1001),), attempts)
    data, kept, tries = write_body(checkpoint, 60)

    assert (kept, tries) == (1, min(tried, 17))
    assert len(read_body(data, None).attempts) == tries


def test_position_of_eight_numbers_is_read_back() -> None:
    """More than any broker has."""
    low, high = tuple(range(8)), tuple(range(1, 9))
    checkpoint = Checkpoint(low, high, (), {high: (1, 0.0)})

    assert read_body(write_body(checkpoint, 100).data, None) == checkpoint
