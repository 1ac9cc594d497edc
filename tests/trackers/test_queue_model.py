"""The queue tracker against its model: a seeded driver, and a Hypothesis state machine."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import initialize, rule, run_state_machine_as_test

from tests.trackers.driver import Step
from tests.trackers.queue_driver import QueueDriver, Setup
from tests.trackers.steps import (
    AT_LENGTH,
    CHOICE,
    LIMITS,
    SETTINGS,
    SKEWS,
    TrackerRules,
    assert_reached,
    go_past_restored,
    prepare_restart,
    run_seed,
    slow_seeds,
    some,
    steps_of,
)

REPLAY = "many_seeded_steps_of_a_queue"
REACHED = {
    "restart with attempts": 0.6,
    "again": 0.3,
    "held": 0.45,
    "handed out late": 0.05,
    "known": 0.95,
    "dropped": 0.95,
    "two live chunks": 0.95,
    "hashed indices": 0.95,
    "positions not hashed": 0.6,
}
"""In so many of the seeds: without these, agreeing would say little."""


def make(rng: random.Random) -> QueueDriver:
    """A random setup: chunk sizes, limits, timeouts, and how much is remembered."""
    return QueueDriver(
        Setup(
            chunk_bits=rng.randint(1, 7),
            max_attempts=rng.choice(LIMITS),
            timeout=rng.choice([None, 0.25, 1.0, 5.0]),
            flush_count=rng.choice([1, 2, 7, 40]),
            proof_count=rng.choice([0, 1, 5, 50]),
            proof_age=rng.choice([0.0, 1.0, 16.0]),
            words=rng.random() < 0.3,
        )
    )


def steps(driver: QueueDriver, rng: random.Random) -> list[Step]:
    """What a queue is asked to do."""

    def restart() -> None:
        prepare_restart(driver, rng)
        driver.restart(rng.choice(SKEWS), durable=rng.random() < 0.8)
        if rng.random() < 0.8:
            driver.redeliver(rng.choice([1, 5, 100]))
            go_past_restored(driver, rng)

    sizes = [1, 4, 30, 3 << driver.setup.chunk_bits - 1]
    return [
        *steps_of(driver, rng),
        (10, lambda: driver.fetch(some(rng, rng.choice(sizes)))),
        (2, driver.reconnect),
        (2, lambda: driver.redeliver(rng.choice([1, 5, 100]))),
        (2, restart),
    ]


def test_seeded_steps_of_a_queue_agree_with_the_model() -> None:
    """T11, T19-T23: redeliveries, re-acks and flushes are what plain lists say they are."""
    drivers = [run_seed(seed, make, steps, REPLAY) for seed in range(30)]
    assert_reached(drivers, REACHED)


def test_several_chunks_of_128_in_a_queue_agree_with_the_model() -> None:
    """Not only tiny ones."""

    def make_large(rng: random.Random) -> QueueDriver:
        return QueueDriver(replace(make(rng).setup, chunk_bits=7))

    drivers = [run_seed(seed, make_large, steps, REPLAY) for seed in range(5)]
    assert_reached(drivers, {"two live chunks": 1.0})


@pytest.mark.campaign
def test_many_seeded_steps_of_a_queue_agree_with_the_model() -> None:
    """The same for many seeds, 300 steps each."""
    for seed in slow_seeds():
        run_seed(seed, make, steps, REPLAY)


class QueueOfRecords(TrackerRules):
    """What a queue is asked to do."""

    @initialize(
        bits=st.integers(1, 3),
        limit=st.sampled_from([1, 2, 4, None]),
        timeout=st.sampled_from([None, 0.25, 1.0]),
        flush_count=st.sampled_from([1, 3]),
        proof_count=st.sampled_from([0, 2, 5]),
        proof_age=st.sampled_from([0.0, 1.0, 16.0]),
        words=st.booleans(),
    )
    def begin(self, *, bits: int, words: bool, **limits: float | None) -> None:
        """Starts with an empty queue."""
        setup: dict[str, object] = {"max_attempts": limits.pop("limit"), **limits}
        self.driver = QueueDriver(Setup(chunk_bits=bits, words=words, **setup))  # type: ignore[arg-type]  # by name

    @rule(choices=st.lists(CHOICE, max_size=8))
    def fetch(self, choices: list[int]) -> None:
        """New records, and some that came before."""
        self.driver.fetch(choices)

    @rule()
    def reconnect(self) -> None:
        """All that the broker has not heard of comes again."""
        self.driver.reconnect()

    @rule(most=st.sampled_from([1, 5, 100]))
    def redeliver(self, most: int) -> None:
        """What has failed before."""
        self.driver.redeliver(most)

    @rule(skew=st.sampled_from(SKEWS), durable=st.booleans())
    def restart(self, skew: float, *, durable: bool) -> None:
        """With the attempts that were stored."""
        self.driver.restart(skew, durable=durable)


QueueOfRecords.TestCase.settings = SETTINGS
TestQueueOfRecords = QueueOfRecords.TestCase


@pytest.mark.campaign
def test_many_rules_of_a_queue_agree_with_the_model() -> None:
    """Two thousand examples, which Hypothesis makes and shrinks."""
    run_state_machine_as_test(QueueOfRecords, settings=AT_LENGTH)
