"""Who is alive, by counters and the observer's clock alone."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from consumer_sdk.leases.liveness import Liveness

DURATION = 9.0
STEPS = st.lists(
    st.tuples(st.floats(0, 100), st.floats(0, 100), st.booleans()), min_size=1, max_size=40
)


def observe(liveness: Liveness, count: int, now: float) -> bool:
    """Whether a member with that counter is alive; the answer takes no time."""
    return "m" in liveness.observe({"m": count}, now, now)


def test_counter_that_stands_still_for_the_duration_is_death() -> None:
    """Exactly then, and a counter that moves is life at once."""
    liveness = Liveness(DURATION)
    seen = [observe(liveness, 7, now) for now in (100.0, 103.0, 106.0, 108.75, 109.0, 110.0)]
    assert seen == [True, True, True, True, False, False]
    assert observe(liveness, 8, 111.0)


def test_no_more_than_a_third_is_counted_at_once() -> None:
    """After an outage of an hour the living have two thirds of the duration to renew."""
    liveness = Liveness(DURATION)
    assert observe(liveness, 7, 0.0)
    assert observe(liveness, 7, 3600.0)
    assert observe(liveness, 7, 3605.0)
    assert not observe(liveness, 7, 3608.0)


def test_time_that_an_answer_takes_is_not_silence() -> None:
    """A counter may have moved just before a slow first answer came."""
    liveness = Liveness(DURATION)
    for asked in (0.0, 3.0, 6.0, 9.0):
        assert liveness.observe({"m": 1}, asked, asked + 2.9) == {"m"}


def test_member_that_comes_back_starts_anew() -> None:
    """Gone for one look, its silence of before is forgotten."""
    liveness = Liveness(DURATION)
    for now in (0.0, 3.0, 6.0):
        assert observe(liveness, 7, now)
    assert liveness.observe({}, 7.0, 7.0) == frozenset()
    assert observe(liveness, 7, 9.0)
    assert observe(liveness, 7, 12.0)


@given(STEPS)
def test_nobody_dies_before_the_duration(steps: list[tuple[float, float, bool]]) -> None:
    """However irregular the looks: dead is only who has not moved for that long."""
    liveness, now, count, moved_at = Liveness(DURATION), 0.0, 0, 0.0
    for pause, latency, has_moved in steps:
        now += pause
        asked = now
        now += latency
        if has_moved:
            count, moved_at = count + 1, now
        alive = liveness.observe({"m": count}, asked, now)
        assert alive or now - moved_at >= DURATION - 1e-6
