"""Interval sets."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from consumer_sdk.spark_bridge.feed.index import IntervalSet, intervals_of
from tests.spark_bridge.unhurried import unhurried

SMALL = st.integers(-20, 40)
SPAN = st.tuples(SMALL, st.integers(0, 8)).map(lambda pair: (pair[0], pair[0] + pair[1]))


@unhurried
@given(st.lists(SPAN))
def test_any_additions_hold_what_a_plain_set_holds(spans: list[tuple[int, int]]) -> None:
    """An interval set has the members of a plain set, in the fewest intervals."""
    found = IntervalSet(spans)
    model = {value for first, last in spans for value in range(first, last + 1)}
    assert [value for value in range(-30, 60) if value in found] == sorted(model)
    assert list(found) == intervals_of(sorted(model))


@unhurried
@given(st.lists(SPAN), SPAN)
def test_a_span_overlaps_exactly_when_it_shares_a_member(
    spans: list[tuple[int, int]], probe: tuple[int, int]
) -> None:
    """``overlaps`` says whether any member lies in the span."""
    model = {value for first, last in spans for value in range(first, last + 1)}
    shared = not model.isdisjoint(range(probe[0], probe[1] + 1))
    assert IntervalSet(spans).overlaps(*probe) is shared


def test_a_million_neighbours_take_one_interval() -> None:
    """Memory follows the gaps, not the range."""
    found = IntervalSet()
    for value in range(0, 1_000_000, 1000):
        found.add(value, value + 999)
    assert list(found) == [(0, 999_999)]


def test_the_ends_of_64_bits_are_held() -> None:
    """The largest and smallest offsets do not overflow."""
    found = IntervalSet([(-(2**63) + 1, -(2**63) + 1), (2**63 - 2, 2**63 - 2)])
    assert 2**63 - 2 in found
    assert 2**63 - 3 not in found
