"""The log tracker against its model: a seeded driver, and a Hypothesis state machine."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import initialize, rule, run_state_machine_as_test

from tests.trackers.driver import Step
from tests.trackers.log_driver import LogDriver, Setup
from tests.trackers.steps import (
    AT_LENGTH,
    LIMITS,
    SETTINGS,
    SKEWS,
    TrackerRules,
    assert_reached,
    go_past_restored,
    prepare_restart,
    run_seed,
    slow_seeds,
    steps_of,
)

REPLAY = "many_seeded_steps_of_a_log"
REACHED = {
    "restart with ranges": 0.7,
    "restart with attempts": 0.5,
    "again": 0.4,
    "held": 0.35,
    "handed out late": 0.05,
    "settled": 0.7,
    "sparse chunk": 0.7,
    "two live chunks": 0.95,
}
"""In so many of the seeds: without these, agreeing would say little."""


def make(rng: random.Random) -> LogDriver:
    """A random setup: tiny chunks and larger ones, limits, timeouts, both kinds of position."""
    return LogDriver(
        Setup(
            chunk_bits=rng.randint(1, 7),
            max_attempts=rng.choice(LIMITS),
            timeout=rng.choice([None, 0.25, 1.0, 5.0]),
            pairs=rng.random() < 0.3,
            names=rng.random() < 0.4,
            keeps_ranges=rng.random() < 0.8,
        )
    )


def steps(driver: LogDriver, rng: random.Random) -> list[Step]:
    """What a log is asked to do."""

    def gaps() -> list[int]:
        widest = rng.choice([1, 1, 3, 1000])
        count = rng.choice([0, 1, 2, 5, 20, 60, 3 << driver.setup.chunk_bits - 1])
        return [rng.randint(1, widest) for _ in range(count)]

    def fetch() -> None:
        driver.fetch(gaps(), any_of(9), ended=rng.random() < 0.02)

    def restart() -> None:
        prepare_restart(driver, rng)
        lost = rng.choice([0.0, 0.1])
        driver.restart(rng.choice(SKEWS), lambda: rng.random() < lost, durable=rng.random() < 0.8)
        if rng.random() < 0.8:
            fetch()
            go_past_restored(driver, rng)

    any_of = rng.randrange
    return [
        *steps_of(driver, rng),
        (8, fetch),
        (2, lambda: driver.refetch(any_of(60), any_of(70), any_of(9))),
        (2, restart),
    ]


def test_seeded_steps_agree_with_the_model() -> None:
    """T4, T5, T19-T23: at every step the tracker is where plain loops say it is."""
    drivers = [run_seed(seed, make, steps, REPLAY) for seed in range(30)]
    assert_reached(drivers, REACHED)


def test_several_chunks_of_128_in_a_log_agree_with_the_model() -> None:
    """Not only tiny ones."""

    def make_large(rng: random.Random) -> LogDriver:
        return LogDriver(replace(make(rng).setup, chunk_bits=7))

    drivers = [run_seed(seed, make_large, steps, REPLAY) for seed in range(5)]
    assert_reached(drivers, {"two live chunks": 1.0})


@pytest.mark.campaign
def test_many_seeded_steps_of_a_log_agree_with_the_model() -> None:
    """The same for many seeds, 300 steps each."""
    for seed in slow_seeds():
        run_seed(seed, make, steps, REPLAY)


class LogTracker(TrackerRules):
    """What a log is asked to do."""

    @initialize(
        bits=st.integers(1, 3),
        limit=st.sampled_from([1, 2, 4, None]),
        timeout=st.sampled_from([None, 0.25, 1.0]),
        pairs=st.booleans(),
        names=st.booleans(),
        keeps_ranges=st.booleans(),
    )
    def begin(self, bits: int, limit: int | None, timeout: float | None, **kinds: bool) -> None:
        """Starts with an empty log."""
        self.driver = LogDriver(Setup(bits, limit, timeout, **kinds))

    @rule(
        gaps=st.lists(st.integers(1, 4), max_size=12), move=st.integers(0, 8), ended=st.booleans()
    )
    def fetch(self, gaps: list[int], move: int, *, ended: bool) -> None:
        """The next run."""
        self.driver.fetch(gaps, move, ended=ended)

    @rule(back=st.integers(0, 10), count=st.integers(0, 15), move=st.integers(0, 1))
    def refetch(self, back: int, count: int, move: int) -> None:
        """Overlapping runs."""
        self.driver.refetch(back, count, move)

    @rule(
        skew=st.sampled_from([0.0, 50.0, -1e6]),
        lost=st.sets(st.integers(0, 40), max_size=8),
        durable=st.booleans(),
    )
    def restart(self, skew: float, lost: set[int], *, durable: bool) -> None:
        """From what is durable, with some records compacted away."""
        places = iter(range(10**9))
        self.driver.restart(skew, lambda: next(places) in lost, durable=durable)


LogTracker.TestCase.settings = SETTINGS
TestLogTracker = LogTracker.TestCase


@pytest.mark.campaign
def test_many_rules_of_a_log_agree_with_the_model() -> None:
    """Two thousand examples, which Hypothesis makes and shrinks."""
    run_state_machine_as_test(LogTracker, settings=AT_LENGTH)
