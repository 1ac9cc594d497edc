"""What the broker is to be told of, and what it was told of lately."""

from __future__ import annotations

import random

import pytest

from consumer_sdk.trackers.unflushed import RecentlySettled, Unflushed


def tell(settled: RecentlySettled, position: int, now: float = 0.0) -> None:
    """Flushes one position."""
    settled.add(position, None)
    settled.take()
    settled.remember(now)


def test_position_is_known_from_its_settling_to_the_end_of_the_window() -> None:
    """Pending, in the air, told, and in the older generation."""
    settled = RecentlySettled(2, 1e9)
    assert 5 not in settled
    settled.add(5, "handle")
    assert 5 in settled
    assert list(settled.take()) == [(5, "handle")]
    assert 5 in settled
    settled.remember(0.0)
    assert 5 in settled

    for other in (1, 2):
        tell(settled, other)
        assert 5 in settled
    assert settled.knows(frozenset([5, 99]))
    for other in (3, 4):
        tell(settled, other)
    assert 5 not in settled
    assert not settled.knows(frozenset([5, 99]))


def test_settled_side_by_side_and_settled_again_are_one_flush() -> None:
    """The newest handle of each; what was put back comes first, and is known all the time."""
    settled = RecentlySettled(9, 9.0)
    settled.positions += [1, 2, 3]
    settled.natives += ["first 1", "first 2", "first 3"]
    assert len(settled) == 3
    settled.add(2, "second 2")
    settled.positions.append(4)
    settled.natives.append("first 4")
    assert (len(settled), 4 in settled, 5 in settled) == (4, True, False)
    flight = [(1, "first 1"), (2, "second 2"), (3, "first 3"), (4, "first 4")]
    assert list(settled.take()) == flight
    settled.positions.append(5)
    settled.natives.append("first 5")
    settled.put_back()
    assert list(settled.pending) == [*flight, (5, "first 5")]


def test_position_that_is_told_twice_is_counted_once() -> None:
    """A generation holds as many different ones as it says."""
    settled = RecentlySettled(3, 1e9)
    for _ in range(4):
        tell(settled, 1)
    tell(settled, 2)
    tell(settled, 3)
    tell(settled, 4)
    assert [at in settled for at in (1, 2, 3, 4)] == [True] * 4
    for position in (5, 6, 7):
        tell(settled, position)
    assert [at in settled for at in (1, 2, 3, 4)] == [False] * 3 + [True]


@pytest.mark.parametrize("stage", ["pending", "in the air", "told", "older"])
def test_one_known_position_in_a_run_is_noticed(stage: str) -> None:
    """Wherever it is."""
    settled = RecentlySettled(1, 1e9)
    settled.add(5, None)
    if stage != "pending":
        settled.take()
    if stage in {"told", "older"}:
        settled.remember(0.0)
    if stage == "older":
        tell(settled, 6)

    assert settled.knows(frozenset(range(4, 9)))
    assert not settled.knows(frozenset(range(10, 90)))


def test_newest_handle_is_the_one_that_is_sent() -> None:
    """Settled, redelivered, and put back behind a newer delivery."""
    settled = RecentlySettled(9, 9.0)
    settled.add(5, "first")
    settled.add(5, "second")
    settled.add(6, "first")
    assert list(settled.take()) == [(5, "second"), (6, "first")]

    settled.add(5, "third")
    settled.put_back()
    assert dict(settled.take()) == {5: "third", 6: "first"}


def test_flush_that_named_nothing_can_be_put_back_and_confirmed() -> None:
    """Attempts alone are flushed too."""
    settled = RecentlySettled(9, 9.0)
    assert list(settled.take()) == []
    settled.put_back()
    settled.remember(0.0)

    assert list(settled.take()) == []


def test_confirmed_flush_is_not_put_back() -> None:
    """A log's: what has arrived is gone."""
    unsent = Unflushed()
    unsent.add(5, "handle")
    unsent.take()
    unsent.confirm()
    unsent.put_back()

    assert list(unsent.take()) == []


def test_generation_is_over_when_it_is_as_old_as_it_may_be() -> None:
    """The next flush begins another; the one after that forgets it."""
    settled = RecentlySettled(1000, 10.0)
    tell(settled, 1, 0.0)
    tell(settled, 2, 10.0)
    assert 1 in settled
    tell(settled, 3, 20.0)

    assert [1 in settled, 2 in settled] == [False, True]


@pytest.mark.parametrize(
    "seed", [*range(3), *(pytest.param(seed, marks=pytest.mark.campaign) for seed in range(3, 40))]
)
def test_window_keeps_at_least_what_it_says_and_at_most_twice_that(seed: int) -> None:
    """By count and by age, whichever comes first; one flush more, since only flushes turn it."""
    rng = random.Random(seed)
    count, age, most = rng.randint(1, 20), rng.choice([5.0, 50.0]), rng.randint(1, 4)
    settled, told, now = RecentlySettled(count, age), [(-1, -1e9)], 0.0
    for _ in range(200):
        now += rng.choice([0.0, 1.0, 3.0])
        fresh = range(told[-1][0] + 1, told[-1][0] + 1 + rng.randint(0, most))
        for position in fresh:
            settled.add(position, None)
        settled.take()
        settled.remember(now)
        told += [(position, now) for position in fresh]
        for position, at in told[1:]:
            further = told[-1][0] - position
            if further < count and now - at < age:
                assert position in settled
            if further > 2 * (count + most):
                assert position not in settled
