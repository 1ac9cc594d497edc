"""Settled ranges: what they hold, and their union."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from consumer_sdk.records.ranges import Span, holds, join

PLACES = range(30)
ONE_RANGE = st.tuples(st.sampled_from(PLACES), st.sampled_from(PLACES)).map(
    lambda ends: (min(ends), max(ends))
)
RANGES = st.lists(ONE_RANGE, max_size=8)


def places(ranges: list[Span]) -> set[int]:
    """What lies in them, with the middles between whole numbers: two times each place."""
    return {place for first, last in ranges for place in range(2 * first, 2 * last + 1)}


@given(RANGES, st.none() | st.sampled_from(PLACES))
def test_joined_ranges_hold_what_the_parts_held(ranges: list[Span], watermark: int | None) -> None:
    """Nothing more and nothing less; ascending, disjoint and above the watermark."""
    prefix = [] if watermark is None else [(-1, watermark)]
    top, joined = join(watermark, ranges)

    assert places([*prefix, *ranges]) == places([*([] if top is None else [(-1, top)]), *joined])
    ends = [*([] if top is None else [top]), *(end for each in joined for end in each)]
    assert ends == sorted(ends)
    assert all(last < first for (_, last), (first, _) in pairwise(joined))


@given(RANGES, ONE_RANGE)
def test_range_is_held_when_all_of_it_is(ranges: list[Span], wanted: Span) -> None:
    """By one of the ranges: between two of them something may be unsettled."""
    _, joined = join(None, ranges)

    assert holds(joined, wanted) == (places([wanted]) <= places(ranges))


def test_neighbours_without_a_shared_position_stay_apart() -> None:
    """Positions need not be whole numbers: there may be something between 3 and 4."""
    assert join(None, [(4, 6), (1, 3)]) == (None, ((1, 3), (4, 6)))
    assert join(3, [(4, 6)]) == (3, ((4, 6),))
    assert not holds([(1, 3), (4, 6)], (3, 4))


def test_range_that_reaches_into_the_prefix_lifts_the_watermark() -> None:
    """And so do the ones that this reaches."""
    assert join(3, [(20, 21), (9, 12), (2, 9)]) == (12, ((20, 21),))
