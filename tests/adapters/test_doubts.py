"""How often something is fetched before it counts as unreadable."""

from __future__ import annotations

from consumer_sdk.adapters.doubts import Doubts


def test_failures_are_counted_by_position() -> None:
    """Whoever got further begins anew: bits may flip in more than one place."""
    doubts = Doubts()
    assert [doubts.failed_at(at) for at in (0, 0, 0, 3, 3, 0)] == [1, 2, 3, 1, 2, 1]
