"""The schedule of retries and ack timeouts."""

from __future__ import annotations

import random

from hypothesis import given
from hypothesis import strategies as st

from consumer_sdk.trackers.schedule import Moment, Schedule
from tests.trackers.building import NOW, tracking


def start(schedule: Schedule, due: float, *indices: int, is_retry: bool = True) -> None:
    """Something is due for these records; their items are their indices as text."""
    schedule.start(due, {index: str(index) for index in indices}, is_retry=is_retry)


def pop(schedule: Schedule, now: float) -> list[int]:
    """Which records are due, in order."""
    return [index for index, _, _ in schedule.pop_due(now)]


def test_empty_schedule_has_nothing_due() -> None:
    """No time, no records."""
    schedule = Schedule()
    schedule.stop(0)

    assert (schedule.next_due(), schedule.retrying, pop(schedule, 1e9)) == (None, 0, [])


def test_short_delay_is_not_held_up_by_a_long_one() -> None:
    """Pulsar's Java client armed its timer for the first nack alone: 10 s waited for 10 min."""
    tracker = tracking(range(2))
    tracker.nack(0, 1, NOW, 600.0, "long")
    tracker.nack(1, 1, NOW, 10.0, "short")

    assert tracker.next_due() == NOW + 10
    assert tracker.due(NOW + 10).ready == [(1, 2, "short")]
    assert tracker.next_due() == NOW + 600


def test_steady_failures_do_not_put_off_the_first() -> None:
    """Pulsar's C++ client armed its timer anew at each nack: none came while they went on."""
    tracker = tracking(range(100))
    came = []
    for index in range(100):
        now = NOW + 0.5 * index
        tracker.nack(index, 1, now, 3.0)
        came += [(i, now) for i, _, _ in tracker.due(now).ready]

    assert came == [(index, NOW + 0.5 * index + 3.0) for index in range(94)]


def test_due_is_exact() -> None:
    """Not a moment before, and at the moment itself; no buckets, no ticks."""
    schedule = Schedule()
    start(schedule, 10.0, 1)

    assert pop(schedule, 9.999_999_999) == []
    assert pop(schedule, 10.0) == [1]


def test_what_is_due_comes_by_time_and_then_by_record() -> None:
    """Whatever the order in which it was scheduled."""
    schedule = Schedule()
    for due, index in ((2.0, 1), (1.0, 9), (2.0, 0), (1.0, 4)):
        start(schedule, due, index)

    assert schedule.next_due() == 1.0
    assert pop(schedule, 5.0) == [4, 9, 0, 1]


def test_newer_time_replaces_the_older() -> None:
    """Each record has one moment at most."""
    schedule = Schedule()
    start(schedule, 1.0, 7)
    start(schedule, 5.0, 7)

    assert (schedule.next_due(), schedule.retrying) == (5.0, 1)
    assert pop(schedule, 4.0) == []
    assert pop(schedule, 5.0) == [7]


def test_stopped_record_leaves_nothing_behind() -> None:
    """Neither an entry nor its item, while those that share its moment stay."""
    schedule = Schedule()
    start(schedule, 1.0, 1, 2, is_retry=False)
    schedule.stop(1)
    schedule.stop(1)

    assert schedule.moment_of.keys() == {2}
    assert schedule.moment_of[2].items == {2: "2"}
    assert pop(schedule, 1.0) == [2]
    assert (schedule.next_due(), schedule.moment_of) == (None, {})


def test_stopping_the_last_of_a_moment_removes_the_moment() -> None:
    """Nothing stale is ever the first."""
    schedule = Schedule()
    start(schedule, 1.0, 1, 2)
    start(schedule, 3.0, 3)
    schedule.stop(1)
    schedule.stop(2)

    assert (schedule.next_due(), schedule.retrying) == (3.0, 1)


def test_only_retries_count_as_retrying() -> None:
    """A delivery that may time out is in flight."""
    schedule = Schedule()
    start(schedule, 1.0, 1, 2, is_retry=False)
    start(schedule, 1.0, 3, 4)
    assert schedule.retrying == 2

    assert [is_retry for _, _, is_retry in schedule.pop_due(1.0)] == [False, False, True, True]
    assert schedule.retrying == 0


def test_what_comes_due_may_be_scheduled_again_meanwhile() -> None:
    """An expiry that starts a retry: for now it comes in the same turn, for later it waits."""
    schedule = Schedule()
    start(schedule, 1.0, 1, 2, is_retry=False)
    came = []
    for index, _, is_retry in schedule.pop_due(1.0):
        came.append((index, is_retry))
        if not is_retry:
            start(schedule, 1.0 if index == 1 else 2.0, index)

    assert sorted(came) == [(1, False), (1, True), (2, False)]
    assert schedule.next_due() == 2.0


def test_moments_of_the_same_time_and_record_keep_their_order() -> None:
    """Two moments never compare equal, so that the right one is removed."""
    first, second = (Moment(1.0, number, {5: None}, is_retry=True) for number in (1, 2))

    assert (first.key < second.key, second.key < first.key) == (True, False)


@given(seed=st.integers(0, 10**6))
def test_schedule_agrees_with_a_dict(seed: int) -> None:
    """The model: index → (due, item); what is due is what is not later than now."""
    rng, schedule, now = random.Random(seed), Schedule(), 0.0
    model: dict[int, tuple[float, str]] = {}
    for _ in range(60):
        index, due = rng.randrange(12), now + rng.choice([0.0, 0.5, 0.5, 4.0])
        action = rng.randrange(4)
        if action == 0:
            items = {i: f"{i} at {due}" for i in range(index, index + rng.randint(1, 3))}
            schedule.start(due, dict(items), is_retry=True)
            model |= {i: (due, item) for i, item in items.items()}
        elif action == 1:
            schedule.stop(index)
            model.pop(index, None)
        elif action == 2:
            now += rng.choice([0.0, 0.5, 2.0])
            ready = {index: item for index, item, _ in schedule.pop_due(now)}
            assert ready == {i: item for i, (at, item) in model.items() if at <= now}
            model = {i: entry for i, entry in model.items() if i not in ready}
        assert schedule.next_due() == min((at for at, _ in model.values()), default=None)
        assert schedule.retrying == len(schedule.moment_of) == len(model)
