"""When a shard may be asked again."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from consumer_sdk.adapters.kinesis.service.rates import Limits, ShardRates, Share
from consumer_sdk.errors import ConfigurationError

MEBIBYTE = 1024 * 1024

steps = st.lists(
    st.tuples(
        st.sampled_from(["data", "tip", "empty", "failed", "lost"]),
        st.floats(0, 2),  # seconds that the answer takes
        st.floats(0, 0.5),  # seconds that the caller takes
    ),
    max_size=60,
)


def rates(limits: Limits | None = None, *, poll: float = 1.0, chance: float = 0.5) -> ShardRates:
    """Those of AWS; a failure waits for exactly its back-off unless chance says otherwise."""
    return ShardRates(limits or Limits(), poll, lambda: chance)


def call(shard: ShardRates, now: float, size: int = 0, *, at_tip: bool = False) -> float:
    """One call at its time, answered at once; returns when it was."""
    at = max(now, shard.next_call())
    shard.called(at)
    shard.answered(at, size, is_at_tip=at_tip)
    return at


def test_first_call_is_made_at_once() -> None:
    """Nobody has asked yet; the limits are those of AWS."""
    assert Limits() == Limits(calls=5, bytes=2 * MEBIBYTE)
    assert rates().next_call() == 0


@given(steps)
def test_any_second_has_five_calls_whatever_comes_of_them(steps: list[Any]) -> None:
    """Kinesis trap 22: the limit is one for calls that succeed, fail and are never answered."""
    shard, now, calls = rates(), 0.0, []
    for outcome, takes, rest in steps:
        now = max(now + rest, shard.next_call())
        shard.called(now)
        calls.append(now)
        now += takes
        if outcome == "failed":
            shard.failed(now)
        elif outcome != "lost":
            shard.answered(now, 1000 * (outcome == "data"), is_at_tip=outcome == "tip")
    sixths = zip(calls, calls[5:], strict=False)
    assert all(sixth - first > 1 for first, sixth in sixths)


def test_call_that_was_slow_on_its_way_is_counted_when_it_can_have_arrived() -> None:
    """Kinesis trap 22: the server counts arrivals; the sixth after it must not follow at once."""
    shard = rates()
    for _ in range(4):
        call(shard, 0.0)
    shard.called(0.0)
    shard.answered(0.9, 0, is_at_tip=False)
    for _ in range(4):
        call(shard, 1.1)
    assert shard.next_call() > 1.9


@given(st.lists(st.integers(0, 10 * MEBIBYTE), min_size=1, max_size=30))
def test_bytes_are_paid_for_before_the_next_call(sizes: list[int]) -> None:
    """Kinesis trap 22: 2 MiB a second on average, over any stretch of calls."""
    shard = rates()
    calls = [call(shard, 0.0, size) for size in sizes]
    for (before, after), size in zip(pairwise(calls), sizes, strict=False):
        assert after - before >= size / (2 * MEBIBYTE) - 1e-9


def test_answer_of_ten_mebibytes_is_followed_by_five_seconds_of_nothing() -> None:
    """Kinesis trap 22: what the service would refuse anyway is not asked for."""
    shard = rates()
    call(shard, 0.0, 10 * MEBIBYTE)
    assert 5 < shard.next_call() < 5.5  # a gap for others


def test_busy_shard_is_asked_again_at_once_until_five_calls_are_used_up() -> None:
    """Small answers that are not the last do not wait for anything but the calls."""
    shard = rates()
    calls = [call(shard, 0.0, 10) for _ in range(6)]
    assert calls[4] < 0.001
    assert 1 < calls[5] < 1.1


def test_shard_at_its_tip_is_asked_evenly_and_then_less_often() -> None:
    """A record that comes to an idle shard waits for one poll interval at most."""
    shard = rates(poll=1.0)
    calls = [call(shard, 0.0, at_tip=True) for _ in range(8)]
    waits = [after - before for before, after in pairwise(calls)]
    assert waits[0] == pytest.approx(0.25, abs=0.01)  # four a second: a fifth is for others
    assert all(after > before - 1e-9 for before, after in pairwise(waits))
    assert waits[-1] == 1.0


def test_record_makes_an_idle_shard_busy_again() -> None:
    """Adaptive: where one was, there may be more soon."""
    shard = rates(poll=1.0)
    for _ in range(8):
        call(shard, 0.0, at_tip=True)
    last = call(shard, 0.0, 10, at_tip=True)
    assert shard.next_call() - last < 0.3


def test_empty_answer_behind_the_tip_polls_on_without_a_pause() -> None:
    """Kinesis trap 24: empty answers while MillisBehindLatest is above 0 are no sign of rest."""
    shard = rates(poll=1.0)
    for _ in range(8):
        call(shard, 0.0, at_tip=True)
    last = call(shard, 0.0, at_tip=False)
    assert shard.next_call() == last
    last = call(shard, 0.0, at_tip=True)
    assert shard.next_call() - last < 0.3  # and then as a busy shard


def test_failures_in_a_row_wait_longer_up_to_a_limit() -> None:
    """Kinesis trap 22: a shard that refuses is not asked in a tight loop."""
    shard = rates()
    assert [shard.failed(0.0) for _ in range(7)] == [0.5, 1, 2, 4, 8, 10, 10]
    assert shard.next_call() == 10


def test_refusal_leaves_a_smaller_share_and_is_tried_again_soon() -> None:
    """Additive increase, multiplicative decrease; several refusals of one second count once."""
    share = Share()
    for now in (10.0, 10.5, 12.0):
        share.refused(now)
    assert share.value == pytest.approx(0.64)
    share.answered(22.0)
    assert share.value == pytest.approx(0.685)
    share.answered(200.0)
    assert share.value == 1.0
    for now in range(300, 400, 2):
        share.refused(now)
    assert share.value == 0.1


def test_share_grows_alike_however_often_the_shard_answers() -> None:
    """Else a reader that asks often would take all; a refusal in the first second is one."""
    often, seldom = Share(), Share()
    for share in (often, seldom):
        share.refused(0.0)
        assert share.value == 0.8
    for now in range(1, 11):
        often.answered(now)
    seldom.answered(10.0)
    assert often.value == pytest.approx(seldom.value) == pytest.approx(0.845)


def test_sixth_call_waits_for_the_first_alone() -> None:
    """A second after it the shard takes another one."""
    shard = rates()
    for now in (0.0, 0.1, 0.2, 0.3, 0.4):
        call(shard, now)
    assert shard.next_call() == pytest.approx(1.02)


def test_call_that_failed_slowly_is_counted_when_it_can_have_arrived() -> None:
    """Kinesis trap 22: as one that was answered."""
    shard = rates()
    shard.called(0.0)
    shard.failed(0.9)
    for _ in range(4):
        call(shard, 0.0)
    assert shard.next_call() == pytest.approx(0.9 + 1.02)


def test_pauses_at_the_tip_double() -> None:
    """Up to the longest one."""
    shard = rates(poll=3.0)
    calls = [call(shard, 0.0, at_tip=True) for _ in range(7)]
    waits = [after - before for before, after in pairwise(calls)]
    assert waits == pytest.approx([0.255, 0.51, 1.02, 2.04, 3, 3])


def test_refusals_in_a_row_wait_longer_up_to_a_limit() -> None:
    """A reader with a small share, whose pace is slower; those before a success count no more."""
    shard, now = rates(), 0.0
    for _ in range(12):
        shard.refused(now := now + 2)
        wait = shard.failed(now)
    assert wait == 1.0
    shard.recovered()
    waits = []
    for _ in range(5):
        shard.refused(now := now + 2)
        waits.append(shard.failed(now))
    assert waits == pytest.approx([0.3, 0.6, 0.9, 1, 1])


def test_reader_that_is_refused_no_more_has_all_again() -> None:
    """The others have gone."""
    shard = rates()
    shard.refused(10.0)
    shard.failed(10.0)
    call(shard, 20.0, 10)
    assert shard.next_call() > 20.1
    call(shard, 500.0)
    assert call(shard, 500.0) == 500.0


def test_reader_that_was_refused_asks_and_takes_less() -> None:
    """Of calls and of bytes, in its share."""
    shard = rates()
    for now in (10.0, 12.0, 14.0):
        shard.refused(now)
        assert 0 < shard.failed(now) <= 1.5  # sooner than its pace: it has had nothing
    last = call(shard, 20.0, 10)
    assert 0.35 < shard.next_call() - last < 0.45  # half of the calls
    last = call(shard, 30.0, 2 * MEBIBYTE)
    assert 1.5 < shard.next_call() - last < 2  # half of the bytes


@pytest.mark.parametrize("forget", ["answered", "recovered"])
def test_success_forgets_the_failures(forget: str) -> None:
    """Of a poll, and of a subscription, which is no call that is answered."""
    shard = rates()
    for _ in range(5):
        shard.failed(0.0)
    if forget == "answered":
        shard.answered(0.0, 0, is_at_tip=True)
    else:
        shard.recovered()
    assert shard.failed(0.0) == 0.5


def test_consumers_throttled_together_come_back_apart() -> None:
    """Kinesis trap 22: jitter, of half to one and a half of the back-off."""
    waits = [rates(chance=chance).failed(0.0) for chance in (0.0, 0.999)]
    assert waits == [pytest.approx(0.25), pytest.approx(0.75, abs=0.001)]


@pytest.mark.parametrize(
    "options", [{"calls": 0}, {"calls": -1}, {"bytes": 0}, {"bytes": -1.0}, {"bytes": math.nan}]
)
def test_limits_that_would_never_let_a_call_through_are_refused(options: Any) -> None:
    """When they are made, not at the first read."""
    with pytest.raises(ConfigurationError, match=r"Limits\((calls|bytes)=.*: give"):
        Limits(**options)
