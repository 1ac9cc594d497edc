"""How the sides of a comparison take turns."""

from __future__ import annotations

from functools import partial

import pytest

from benchmarks.trackers.timing import Stopwatch, medians, ratio, take_turns


def test_sides_alternate_and_the_first_round_does_not_count() -> None:
    """Opposite order in every second round; the warm-up is thrown away."""
    order: list[str] = []

    def turn(side: str) -> float:
        order.append(side)
        return float(len(order))

    found = take_turns({side: partial(turn, side) for side in "ab"}, rounds=3)
    assert "".join(order) == "abbaabba"
    assert found == {"a": [4, 5, 8], "b": [3, 6, 7]}


def test_round_that_is_slow_for_both_leaves_the_ratio() -> None:
    """A ratio is taken within a round, then the median over the rounds."""
    found = {"ours": [1.0, 5.0, 1.0], "peer": [4.0, 20.0, 8.0]}
    assert ratio(found, "peer", "ours") == 4.0
    assert medians(found) == {"ours": 1.0, "peer": 8.0}


def test_stopwatch_adds_up_what_it_timed() -> None:
    """Blocks add up; what lies between them does not count."""
    watch = Stopwatch()
    with watch:
        sum(range(10_000))
    first = watch.seconds
    sum(range(10_000))
    assert watch.seconds == pytest.approx(first)
    with watch:
        sum(range(10_000))
    assert watch.seconds > first > 0
