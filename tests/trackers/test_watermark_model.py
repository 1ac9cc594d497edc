"""The log tracker against its model: a seeded driver, and a Hypothesis state machine."""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from tests.trackers.driver import Driver, Setup

DELAYS = (None, 0.0, 0.25, 2.0, 100.0)


def setup_of(rng: random.Random) -> Setup:
    """A random setup: tiny chunks and larger ones, limits, timeouts, both kinds of position."""
    return Setup(
        chunk_bits=rng.randint(1, 7),
        max_attempts=rng.choice([1, 2, 3, 5, None]),
        timeout=rng.choice([None, 0.0, 1.0, 5.0]),
        pairs=rng.random() < 0.3,
    )


def take_step(driver: Driver, rng: random.Random) -> None:
    """One random step."""

    def some(most: int) -> list[int]:
        return [rng.randrange(10_000) for _ in range(rng.randint(0, most))]

    def gaps() -> list[int]:
        widest = rng.choice([1, 1, 3, 1000])
        return [rng.randint(1, widest) for _ in range(rng.choice([0, 1, 2, 5, 20, 60]))]

    any_of = rng.randrange
    is_rare = rng.random() < 0.02
    steps: list[tuple[int, Callable[[], Any]]] = [
        (8, lambda: driver.fetch(gaps(), any_of(9), ended=is_rare)),
        (2, lambda: driver.refetch(any_of(20), any_of(30), any_of(9))),
        (24, lambda: driver.ack(any_of(10_000))),
        (6, lambda: driver.ack_all(some(12), rng.choice([0, 1, 3, 40]))),
        (3, lambda: driver.ack_cumulative(any_of(10_000))),
        (14, lambda: driver.nack(any_of(10_000), any_of(20), rng.choice(DELAYS))),
        (4, lambda: driver.reject(any_of(10_000), any_of(20))),
        (6, lambda: driver.dead_lettered(any_of(10_000))),
        (6, lambda: driver.hand_out(some(10))),
        (3, lambda: driver.extend(any_of(10_000), any_of(20), rng.choice([0.0, 0.5, 4.0]))),
        (8, lambda: driver.wait(rng.choice([0.0, 0.25, 1.0, 8.0]))),
        (6, lambda: driver.flush(force=rng.random() < 0.7)),
        (6, lambda: driver.answer(any_of(24), rng.choice([0, 300, 400]))),
        (
            2,
            lambda: driver.restart(
                rng.choice([0.0, 1.0, 50.0, -1e6]),
                lambda: rng.random() < 0.1,
                durable=rng.random() < 0.8,
            ),
        ),
    ]
    weights, calls = zip(*steps, strict=True)
    rng.choices(calls, weights)[0]()


def run_seed(seed: int, steps: int = 300) -> None:
    """One run of the driver; an assertion names its seed."""
    rng = random.Random(seed)
    driver = Driver(setup_of(rng))
    try:
        for _ in range(steps):
            take_step(driver, rng)
    except Exception as error:
        error.add_note(f"seed {seed}, {driver.setup}")
        raise


def test_seeded_steps_agree_with_the_model() -> None:
    """T4, T5, T19-T23: at every step the tracker is where plain loops say it is."""
    for seed in range(30):
        run_seed(seed)


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_many_seeded_steps_agree_with_the_model() -> None:
    """The same for as many seeds as the SEEDS variable says."""
    for seed in range(1000, 1000 + int(os.environ.get("SEEDS", "3000"))):
        run_seed(seed)


CHOICE = st.integers(0, 2000)
GAPS = st.lists(st.integers(1, 4), max_size=12)


class LogTracker(RuleBasedStateMachine):
    """The driver's steps, chosen and shrunk by Hypothesis."""

    @initialize(
        bits=st.integers(1, 3),
        limit=st.sampled_from([1, 2, 4, None]),
        timeout=st.sampled_from([None, 0.0, 1.0]),
        pairs=st.booleans(),
    )
    def begin(self, bits: int, limit: int | None, timeout: float | None, *, pairs: bool) -> None:
        """Starts with an empty log."""
        self.driver = Driver(Setup(bits, limit, timeout, pairs))

    @rule(gaps=GAPS, move=st.integers(0, 8), ended=st.booleans())
    def fetch(self, gaps: list[int], move: int, *, ended: bool) -> None:
        """See `Driver`, here and below."""
        self.driver.fetch(gaps, move, ended=ended)

    @rule(back=st.integers(0, 10), count=st.integers(0, 15), move=st.integers(0, 1))
    def refetch(self, back: int, count: int, move: int) -> None:
        """Overlapping runs."""
        self.driver.refetch(back, count, move)

    @rule(choice=CHOICE)
    def ack(self, choice: int) -> None:
        """Individual."""
        self.driver.ack(choice)

    @rule(choices=st.lists(CHOICE, max_size=6), length=st.integers(0, 9))
    def ack_all(self, choices: list[int], length: int) -> None:
        """Many."""
        self.driver.ack_all(choices, length)

    @rule(choice=CHOICE)
    def ack_cumulative(self, choice: int) -> None:
        """Up to here."""
        self.driver.ack_cumulative(choice)

    @rule(choice=CHOICE, late=st.integers(0, 6), delay=st.sampled_from(DELAYS))
    def nack(self, choice: int, late: int, delay: float | None) -> None:
        """Right and late attempts."""
        self.driver.nack(choice, late, delay)

    @rule(choice=CHOICE, late=st.integers(0, 6))
    def reject(self, choice: int, late: int) -> None:
        """Right and late attempts."""
        self.driver.reject(choice, late)

    @rule(choice=CHOICE)
    def dead_lettered(self, choice: int) -> None:
        """Also where there is no dead letter."""
        self.driver.dead_lettered(choice)

    @rule(choices=st.lists(CHOICE, max_size=5))
    def hand_out(self, choices: list[int]) -> None:
        """Also twice."""
        self.driver.hand_out(choices)

    @rule(choice=CHOICE, late=st.integers(0, 6), seconds=st.sampled_from([0.0, 0.5, 4.0]))
    def extend(self, choice: int, late: int, seconds: float) -> None:
        """More time, or no limit."""
        self.driver.extend(choice, late, seconds)

    @rule(seconds=st.sampled_from([0.0, 0.25, 1.0, 8.0]))
    def wait(self, seconds: float) -> None:
        """Time passes."""
        self.driver.wait(seconds)

    @rule(force=st.booleans())
    def flush(self, *, force: bool) -> None:
        """Something in the air."""
        self.driver.flush(force=force)

    @rule(kind=st.integers(0, 23), size=st.sampled_from([0, 300, 400]))
    def answer(self, kind: int, size: int) -> None:
        """Durable, in part, or not."""
        self.driver.answer(kind, size)

    @rule(
        skew=st.sampled_from([0.0, 50.0, -1e6]),
        lost=st.sets(st.integers(0, 40), max_size=8),
        durable=st.booleans(),
    )
    def restart(self, skew: float, lost: set[int], *, durable: bool) -> None:
        """From what is durable, with some records compacted away."""
        places = iter(range(10**9))
        self.driver.restart(skew, lambda: next(places) in lost, durable=durable)


LogTracker.TestCase.settings = settings(
    max_examples=40, stateful_step_count=35, deadline=None, suppress_health_check=list(HealthCheck)
)
TestLogTracker = LogTracker.TestCase
