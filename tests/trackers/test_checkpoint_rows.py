"""A checkpoint's rows within a size budget."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from consumer_sdk.records import Checkpoint
from consumer_sdk.trackers.checkpoint_rows import read_body, write_body
from tests.trackers.codec import checkpoints

HOLES = tuple((10 * i, 10 * i + 3) for i in range(1, 1001))


def size(checkpoint: Checkpoint) -> int:
    """Bytes of all of it."""
    return len(write_body(checkpoint, 10**6)[0])


def rounded(checkpoint: Checkpoint) -> Checkpoint:
    """Without what is below a millisecond, and without what is written beside the rows."""
    tried = checkpoint.attempts.items()
    attempts = {p: (count, round(due * 1000) / 1000) for p, (count, due) in tried}
    return replace(checkpoint, attempts=attempts, identity=None, application=None)


def cut(checkpoint: Checkpoint, ranges: int, attempts: int) -> Checkpoint:
    """With only the lowest of both."""
    lowest = sorted(checkpoint.attempts.items())[:attempts]
    return replace(checkpoint, ranges=checkpoint.ranges[:ranges], attempts=dict(lowest))


def below(checkpoint: Checkpoint, at: int) -> int:
    """Attempts below a range; all of them, when there is no such range."""
    if at == len(checkpoint.ranges):
        return len(checkpoint.attempts)
    return bisect_left(sorted(checkpoint.attempts), checkpoint.ranges[at][0])


@given(checkpoints(), st.integers(0, 900))
def test_budget_keeps_the_lowest_and_as_many_as_fit(checkpoint: Checkpoint, room: int) -> None:
    """Ranges with all attempts below them, then attempts up to the first dropped range."""
    data, ranges = write_body(checkpoint, room)
    found = read_body(data, None)
    attempts = len(found.attempts)

    assert len(data) <= max(room, size(cut(checkpoint, 0, 0)))
    assert found == rounded(cut(checkpoint, ranges, attempts))
    assert (below(checkpoint, ranges - 1) if ranges else 0) <= attempts <= below(checkpoint, ranges)
    spare = room - 2  # room was kept for a count of ranges that is not so short
    if ranges < len(checkpoint.ranges):
        assert size(cut(checkpoint, ranges + 1, below(checkpoint, ranges))) > spare
    if attempts < below(checkpoint, ranges):
        assert size(cut(checkpoint, ranges, attempts + 1)) > spare


def test_top_ranges_go_with_the_attempts_above_them() -> None:
    """Most of the budget is used."""
    checkpoint = Checkpoint(5, 6, HOLES, {10 * i + 5: (1, 0.0) for i in range(1, 1001, 100)})
    data, kept = write_body(checkpoint, 1000)
    found = read_body(data, None)

    assert 990 < len(data) <= 1000
    assert found.ranges == HOLES[:kept]
    assert list(found.attempts) == [p for p in checkpoint.attempts if p < HOLES[kept][0]]
    assert bisect_left(list(checkpoint.attempts), HOLES[kept][0]) == len(found.attempts) > 0


def test_many_attempts_leave_the_ranges_below_them() -> None:
    """The lowest stay, of both; attempts above all ranges go first."""
    checkpoint = Checkpoint(5, 6, ((8, 9), (900, 901)), dict.fromkeys(range(10, 1500), (1, 0.0)))

    assert size(checkpoint) > 4400
    for room, ranges, attempts in ((400, 1, 131), (3000, 2, 996)):
        data, kept = write_body(checkpoint, room)
        assert (kept, len(read_body(data, None).attempts)) == (ranges, attempts)


def test_no_room_at_all_leaves_watermark_and_resume() -> None:
    """They are what keeps records from being lost."""
    data, kept = write_body(Checkpoint(5, 6, HOLES, {7: (1, 0.0)}, ended=True), -100)

    assert kept == 0
    assert read_body(data, None) == Checkpoint(5, 6, ended=True)


@pytest.mark.parametrize("holes", [1000, 100_000])
def test_hole_beside_a_hole_takes_two_bytes(holes: int) -> None:
    """Every second record of a log of whole numbers; the rest is a few bytes."""
    ranges = tuple((10**9 + 2 * i, 10**9 + 2 * i) for i in range(1, holes + 1))
    data, _ = write_body(Checkpoint(10**9, 10**9 + 1, ranges), 10**6)

    assert len(data) <= 2 * holes + 16


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
    data, _ = write_body(Checkpoint(5, 6, (), {6: (1, due)}), 100)

    assert read_body(data, None).attempts == {6: (1, read)}


def test_what_cannot_fit_is_not_looked_at() -> None:
    """The cost is that of the budget, however many holes there are: these would be refused."""
    ranges = tuple((10 * i, 10 * i if i < 60 else 10.5) for i in range(1, 1000))
    attempts = {10 * i + 5: (1, 0.0 if i < 60 else float("nan")) for i in range(1, 1000)}

    assert write_body(Checkpoint(5, 6, ranges), 100)[1] == 47
    assert write_body(Checkpoint(5, 6, (), attempts), 100)[0]
    for checkpoint in (Checkpoint(5, 6, ranges), Checkpoint(5, 6, (), attempts)):
        with pytest.raises((TypeError, ValueError)):
            write_body(checkpoint, 10_000)


@pytest.mark.parametrize("tried", range(1, 40))
def test_range_above_any_number_of_attempts_fits_with_all_of_them(tried: int) -> None:
    """Or not at all; the lowest attempts stay."""
    attempts = dict.fromkeys(range(7, 7 + tried), (1, 0.0))
    checkpoint = Checkpoint(5, 6, ((1000, 1001),), attempts)
    data, kept = write_body(checkpoint, 60)

    assert kept == (size(checkpoint) <= 60)
    assert len(read_body(data, None).attempts) == min(tried, 18)


def test_position_of_eight_numbers_is_read_back() -> None:
    """More than any broker has."""
    low, high = tuple(range(8)), tuple(range(1, 9))
    checkpoint = Checkpoint(low, high, (), {high: (1, 0.0)})

    assert read_body(write_body(checkpoint, 100)[0], None) == checkpoint
