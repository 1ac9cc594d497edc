"""The log tracker against its model: a seeded driver, and a Hypothesis state machine."""

from __future__ import annotations

import random

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import initialize, rule

from tests.trackers.driver import Step
from tests.trackers.log_driver import LogDriver, Setup
from tests.trackers.steps import SETTINGS, TrackerRules, run_seed, slow_seeds, steps_of

REPLAY = "many_seeded_steps_of_a_log"


def make(rng: random.Random) -> LogDriver:
    """A random setup: tiny chunks and larger ones, limits, timeouts, both kinds of position."""
    return LogDriver(
        Setup(
            chunk_bits=rng.randint(1, 7),
            max_attempts=rng.choice([1, 2, 3, 5, None]),
            timeout=rng.choice([None, 0.0, 1.0, 5.0]),
            pairs=rng.random() < 0.3,
            names=rng.random() < 0.4,
            keeps_ranges=rng.random() < 0.8,
        )
    )


def steps(driver: LogDriver, rng: random.Random) -> list[Step]:
    """What a log is asked to do."""

    def gaps() -> list[int]:
        widest = rng.choice([1, 1, 3, 1000])
        return [rng.randint(1, widest) for _ in range(rng.choice([0, 1, 2, 5, 20, 60]))]

    def restart() -> None:
        skew = rng.choice([0.0, 1.0, 50.0, -1e6])
        driver.restart(skew, lambda: rng.random() < 0.1, durable=rng.random() < 0.8)

    any_of = rng.randrange
    return [
        *steps_of(driver, rng),
        (8, lambda: driver.fetch(gaps(), any_of(9), ended=rng.random() < 0.02)),
        (2, lambda: driver.refetch(any_of(60), any_of(70), any_of(9))),
        (2, restart),
    ]


def test_seeded_steps_agree_with_the_model() -> None:
    """T4, T5, T19-T23: at every step the tracker is where plain loops say it is."""
    for seed in range(30):
        run_seed(seed, make, steps, REPLAY)


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_many_seeded_steps_of_a_log_agree_with_the_model() -> None:
    """The same for many seeds, 300 steps each."""
    for seed in slow_seeds():
        run_seed(seed, make, steps, REPLAY)


class LogTracker(TrackerRules):
    """What a log is asked to do."""

    @initialize(
        bits=st.integers(1, 3),
        limit=st.sampled_from([1, 2, 4, None]),
        timeout=st.sampled_from([None, 0.0, 1.0]),
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
