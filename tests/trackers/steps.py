"""Random steps for the drivers, and the same steps as rules for Hypothesis."""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule

from tests.trackers.driver import Driver, Step

DELAYS = (None, 0.0, 0.25, 2.0, 100.0)
SECONDS = (0.0, 0.25, 1.0, 8.0)
MORE = (0.0, 0.5, 4.0)
SIZES = (0, 300, 400, 1_000_000)
"""Bytes for a checkpoint."""
LIMITS = (1, 2, 3, 5, None)
SKEWS = (0.0, 0.0, 1.0, 50.0, -1e6)
"""By how much the wall clock is wrong after a restart."""
STEPS_PER_SEED = 300

SETTINGS = settings(
    max_examples=40, stateful_step_count=35, deadline=None, suppress_health_check=list(HealthCheck)
)
AT_LENGTH = settings(SETTINGS, max_examples=2000, stateful_step_count=60)
"""For the slow runs."""


def some(rng: random.Random, most: int) -> list[int]:
    """Up to so many choices."""
    return [rng.randrange(10_000) for _ in range(rng.randint(0, most))]


def steps_of(driver: Driver, rng: random.Random) -> list[Step]:
    """What any tracker can be asked to do, by how often it is."""
    any_of = rng.randrange
    return [
        (24, lambda: driver.ack(any_of(10_000))),
        (6, lambda: driver.ack_all(some(rng, 12), rng.choice([0, 1, 3, 40]))),
        (1, lambda: driver.thin(any_of(100))),
        (4, lambda: driver.ack_cumulative(any_of(10_000))),
        (14, lambda: driver.nack(any_of(10_000), any_of(20), rng.choice(DELAYS))),
        (4, lambda: driver.reject(any_of(10_000), any_of(20))),
        (6, lambda: driver.dead_lettered(any_of(10_000))),
        (6, lambda: driver.hand_out(some(rng, 10), rng.choice([0, 0, 5]))),
        (3, lambda: driver.extend(any_of(10_000), any_of(20), rng.choice(MORE))),
        (8, lambda: driver.wait(rng.choice(SECONDS), hands_out=rng.random() < 0.5)),
        (9, lambda: driver.flush(force=rng.random() < 0.8)),
        (9, lambda: driver.answer(any_of(24), rng.choice(SIZES))),
        (3, lambda: driver.save(rng.choice(SIZES))),
    ]


def prepare_restart(driver: Driver, rng: random.Random) -> None:
    """Mostly something has failed and is durable, and sometimes the limit changes."""
    for _ in range(rng.choice([0, 3, 8])):
        driver.nack(rng.randrange(10_000), 2, rng.choice(DELAYS))
    if rng.random() < 0.9:
        driver.save(rng.choice([*SIZES, 1_000_000, 1_000_000]))
    if rng.random() < 0.2:
        driver.limit(rng.choice(LIMITS))


def go_past_restored(driver: Driver, rng: random.Random) -> None:
    """A cumulative ack passes retries that nobody has seen; then they come due."""
    if rng.random() < 0.5:
        driver.ack_cumulative(rng.randrange(10_000))
    if rng.random() < 0.5:
        driver.wait(rng.choice(SECONDS), hands_out=True)
        driver.ack_cumulative(rng.randrange(10_000))


def run_seed(
    seed: int,
    make: Callable[[random.Random], Driver],
    steps: Callable[[Any, random.Random], list[Step]],
    replay: str,
) -> Driver:
    """One run of a driver; an assertion says how to see it again."""
    rng = random.Random(seed)
    driver = make(rng)
    try:
        for _ in range(STEPS_PER_SEED):
            weights, calls = zip(*steps(driver, rng), strict=True)
            rng.choices(calls, weights)[0]()
    except Exception as error:
        error.add_note(f"again: FIRST={seed} SEEDS=1 make campaigns ARGS='-k {replay}'")
        raise
    return driver


def assert_reached(drivers: Sequence[Driver], shares: Mapping[str, float]) -> None:
    """Each of these came about in so large a share of the runs, or the runs show little."""
    found = {
        what: sum(driver.reached[what] > 0 for driver in drivers) / len(drivers) for what in shares
    }
    assert {what: share for what, share in found.items() if share < shares[what]} == {}


def slow_seeds() -> Iterable[int]:
    """The seeds of the slow runs: as many as SEEDS says, from FIRST on."""
    first = int(os.environ.get("FIRST", "1000"))
    return range(first, first + int(os.environ.get("SEEDS", str(1_020_000 // STEPS_PER_SEED))))


CHOICE = st.integers(0, 2000)
CHOICES = st.lists(CHOICE, max_size=6)
LATE = st.integers(0, 6)


class TrackerRules(RuleBasedStateMachine):
    """The driver's steps, chosen and shrunk by Hypothesis."""

    driver: Any

    @rule(choice=CHOICE)
    def ack(self, choice: int) -> None:
        """Individual."""
        self.driver.ack(choice)

    @rule(choices=CHOICES, length=st.integers(0, 9))
    def ack_all(self, choices: list[int], length: int) -> None:
        """Many."""
        self.driver.ack_all(choices, length)

    @rule(choice=CHOICE)
    def ack_cumulative(self, choice: int) -> None:
        """Up to here."""
        self.driver.ack_cumulative(choice)

    @rule(choice=CHOICE, late=LATE, delay=st.sampled_from(DELAYS))
    def nack(self, choice: int, late: int, delay: float | None) -> None:
        """Right and late attempts."""
        self.driver.nack(choice, late, delay)

    @rule(choice=CHOICE, late=LATE)
    def reject(self, choice: int, late: int) -> None:
        """Right and late attempts, and none."""
        self.driver.reject(choice, late)

    @rule(choice=CHOICE)
    def dead_lettered(self, choice: int) -> None:
        """Also where there is no dead letter."""
        self.driver.dead_lettered(choice)

    @rule(choices=CHOICES, length=st.integers(0, 6))
    def hand_out(self, choices: list[int], length: int) -> None:
        """Also twice."""
        self.driver.hand_out(choices, length)

    @rule(choice=CHOICE, late=LATE, seconds=st.sampled_from(MORE))
    def extend(self, choice: int, late: int, seconds: float) -> None:
        """More time, or no limit."""
        self.driver.extend(choice, late, seconds)

    @rule(seconds=st.sampled_from(SECONDS), hands_out=st.booleans())
    def wait(self, seconds: float, *, hands_out: bool) -> None:
        """Time passes."""
        self.driver.wait(seconds, hands_out=hands_out)

    @rule(force=st.booleans())
    def flush(self, *, force: bool) -> None:
        """Something in the air."""
        self.driver.flush(force=force)

    @rule(kind=st.integers(0, 23), size=st.sampled_from(SIZES))
    def answer(self, kind: int, size: int) -> None:
        """Durable, in part, or not."""
        self.driver.answer(kind, size)

    @rule(size=st.sampled_from(SIZES))
    def save(self, size: int) -> None:
        """What a restart is to find."""
        self.driver.save(size)

    @rule(limit=st.sampled_from(LIMITS))
    def limit(self, limit: int | None) -> None:
        """The next epoch's."""
        self.driver.limit(limit)
