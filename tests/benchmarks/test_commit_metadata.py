"""How much a Kafka commit holds, counted."""

from __future__ import annotations

from benchmarks.commit_metadata import holes_that_fit


def test_some_thousand_holes_of_random_order_fit_each_time() -> None:
    """One seed, one figure; where nearly all is settled there are fewer, and all of them fit."""
    assert holes_that_fit() == holes_that_fit() > 3_700
    assert 0 < holes_that_fit(0.99) < 1_000
