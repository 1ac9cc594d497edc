"""The retry policy and what handlers raise."""

from __future__ import annotations

import math
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from consumer_sdk.errors import ConfigurationError
from consumer_sdk.trackers import Reject, Retry, RetryPolicy

NO_JITTER = RetryPolicy(initial=0.5, multiplier=2.0, maximum=60.0, jitter=0.0)


def test_waits_double_until_the_longest() -> None:
    """The first waits are exact, and the cap is never passed."""
    waits = [NO_JITTER.delay(failures, lambda: 0.0) for failures in range(1, 10)]

    assert waits == [0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 60.0, 60.0]


def test_ten_thousand_attempts_wait_the_longest_time() -> None:
    """T23: no overflow, no negative and no shrinking wait, from attempt 1 to 10 000."""
    waits = [NO_JITTER.delay(failures, lambda: 0.0) for failures in range(1, 10_001)]

    assert waits == sorted(waits)
    assert waits[-1] == 60.0
    assert NO_JITTER.delay(10**400, lambda: 0.0) == 60.0


def test_whole_multiplier_and_any_stored_count_take_no_time() -> None:
    """A checkpoint may hold any count: its power must not be worked out digit by digit."""
    policy = RetryPolicy(multiplier=3, max_attempts=None, jitter=0)

    assert policy.delay(2**31 - 1, lambda: 0.0) == 60.0
    assert policy.delay(3, lambda: 0.0) == 4.5


@given(
    initial=st.floats(0, 1e6),
    factor=st.floats(1, 1e6),
    multiplier=st.floats(1, 1e6),
    jitter=st.floats(0, 1),
    failures=st.integers(1, 10_000),
    chance=st.floats(0, 1, exclude_max=True),
)
def test_any_wait_lies_between_the_jitter_and_the_cap(
    *, initial: float, factor: float, multiplier: float, jitter: float, failures: int, chance: float
) -> None:
    """T23: jitter takes off at most its share, and nothing exceeds the longest wait."""
    policy = RetryPolicy(
        initial=initial, multiplier=multiplier, maximum=initial * factor, jitter=jitter
    )
    full = policy.delay(failures, lambda: 0.0)
    wait = policy.delay(failures, lambda: chance)

    assert initial <= full <= policy.maximum
    assert full * (1 - jitter) <= wait <= full


def test_smallest_first_wait_is_capped_too() -> None:
    """T23: the ratio of the longest to the first wait may overflow as well."""
    policy = RetryPolicy(initial=5e-324, maximum=60.0, jitter=0.0)

    assert policy.delay(10_000, lambda: 0.0) == 60.0


def test_no_first_wait_means_no_wait_ever() -> None:
    """initial=0 retries at once, at any attempt."""
    policy = RetryPolicy(initial=0.0)

    assert {policy.delay(failures, lambda: 0.5) for failures in (1, 5, 10_000)} == {0.0}


@pytest.mark.parametrize(
    "limit, failures, is_exhausted",
    [(1, 1, True), (3, 2, False), (3, 3, True), (None, 10**6, False)],
)
def test_limit_counts_deliveries(limit: int | None, failures: int, *, is_exhausted: bool) -> None:
    """max_attempts=1 means no retry; None means no limit."""
    assert RetryPolicy(max_attempts=limit).is_exhausted(failures) is is_exhausted


@pytest.mark.parametrize(
    "options",
    [
        {"max_attempts": 0},
        {"max_attempts": -1},
        {"max_attempts": 2.5},
        {"max_attempts": math.nan},
        {"initial": -0.1},
        {"initial": math.nan},
        {"initial": math.inf},
        {"multiplier": 0.9},
        {"multiplier": math.inf},
        {"maximum": 0.1},
        {"maximum": math.inf},
        {"jitter": -0.1},
        {"jitter": 1.1},
        {"jitter": math.nan},
    ],
)
def test_policy_that_cannot_work_is_refused_by_name(options: dict[str, Any]) -> None:
    """The error names the option, its value and what to give."""
    [(name, value)] = options.items()
    with pytest.raises(ConfigurationError, match=rf"RetryPolicy\({name}={value}\): give "):
        RetryPolicy(**options)


@pytest.mark.parametrize("delay", [-1.0, math.nan, math.inf])
def test_retry_with_an_impossible_delay_is_refused(delay: float) -> None:
    """A delay that never passes would lose the record in all but name."""
    with pytest.raises(ConfigurationError, match=r"Retry\(delay="):
        Retry(delay=delay)


@pytest.mark.parametrize("reason", [3600, 0.5, timedelta(hours=1), None, ValueError("x")])
@pytest.mark.parametrize("answer", [Retry, Reject])
def test_reason_that_is_no_text_is_refused(answer: Any, reason: object) -> None:
    """`Retry(3600)` means a delay, which would be lost as a reason."""
    way_on = r"Retry\(delay=3600\)" if answer is Retry else "a text, such as"
    with pytest.raises(ConfigurationError, match=way_on):
        answer(reason)


def test_answers_of_a_handler_carry_reason_and_delay() -> None:
    """What becomes the dead letter's error text."""
    assert (str(Retry("busy", delay=3.0)), Retry("busy", delay=3.0).delay) == ("busy", 3.0)
    assert (Retry().delay, Retry(delay=0.0).delay) == (None, 0.0)
    assert str(Reject("bad schema")) == "bad schema"
    assert (str(Retry()), str(Reject())) == ("retry", "rejected")


def test_defaults_are_those_that_the_pages_tell() -> None:
    """Five deliveries, from half a second to a minute, doubled, a fifth of it by chance."""
    told = RetryPolicy(max_attempts=5, initial=0.5, multiplier=2.0, maximum=60.0, jitter=0.2)

    assert RetryPolicy() == told
