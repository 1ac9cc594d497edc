"""The tree trackers against their model: a seeded driver, and a Hypothesis state machine."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    rule,
    run_state_machine_as_test,
)

from consumer_sdk.trackers.trees.receipts import Fate
from tests.trackers.steps import AT_LENGTH, CHOICE, SETTINGS, STEPS_PER_SEED, slow_seeds
from tests.trackers.tree_driver import OFFICES, TreeDriver

FAILED = (Fate.FAILED, Fate.REJECTED)


def take_step(driver: TreeDriver, rng: random.Random) -> None:
    """One random step."""

    def any_of() -> int:
        return rng.randrange(10_000)

    trees = rng.choice([1, 1, 1, 2, 40]) if rng.random() < 0.95 else 300
    other = rng.choice([None, None, any_of()])
    steps: list[tuple[int, Callable[[], Any]]] = [
        (12, lambda: driver.open(any_of(), trees)),
        (3, lambda: driver.another(any_of())),
        (24, lambda: driver.branch(any_of())),
        (8, lambda: driver.join([any_of() for _ in range(rng.randint(1, 4))])),
        (30, lambda: driver.ack(any_of())),
        (4, lambda: driver.fail(any_of(), rng.choice(FAILED))),
        (8, lambda: driver.hand_over(any_of(), any_of())),
        (8, lambda: driver.deliver(any_of(), other, as_bytes=rng.random() < 0.5)),
        (2, lambda: driver.release(any_of())),
    ]
    weights, calls = zip(*steps, strict=True)
    rng.choices(calls, weights)[0]()
    if rng.random() < 0.002:
        driver.close(any_of())


def run_seed(seed: int) -> TreeDriver:
    """One run of the driver; an assertion says how to see it again."""
    rng = random.Random(seed)
    driver = TreeDriver(is_naming=rng.random() < 0.3)
    try:
        for step in range(STEPS_PER_SEED):
            take_step(driver, rng)
            if step % 20 == 19:
                driver.check_ends()
    except Exception as error:
        error.add_note(f"again: FIRST={seed} SEEDS=1 make campaigns ARGS='-k steps_of_trees'")
        raise
    return driver


def test_seeded_steps_of_trees_agree_with_the_model() -> None:
    """A tree is done when the set of its open edges is empty, whatever came in between."""
    ends = [end for seed in range(30) for model in run_seed(seed).models for end in model.ends]
    assert len(ends) > 1000


@pytest.mark.campaign
def test_many_seeded_steps_of_trees_agree_with_the_model() -> None:
    """The same for many seeds, 300 steps each."""
    for seed in slow_seeds():
        run_seed(seed)


class Trees(RuleBasedStateMachine):
    """The driver's steps, chosen and shrunk by Hypothesis."""

    @initialize(is_naming=st.booleans())
    def begin(self, *, is_naming: bool) -> None:
        """Starts with no tree."""
        self.driver = TreeDriver(is_naming=is_naming)

    @rule(choice=CHOICE, trees=st.sampled_from([1, 1, 2, 257]))
    def open(self, choice: int, trees: int) -> None:
        """See `TreeDriver`, here and below."""
        self.driver.open(choice, trees)

    @rule(choice=CHOICE)
    def another(self, choice: int) -> None:
        """Another first branch."""
        self.driver.another(choice)

    @rule(choice=CHOICE)
    def branch(self, choice: int) -> None:
        """Children, here and elsewhere."""
        self.driver.branch(choice)

    @rule(choices=st.lists(CHOICE, min_size=1, max_size=3))
    def join(self, choices: list[int]) -> None:
        """Many anchors."""
        self.driver.join(choices)

    @rule(choice=CHOICE)
    def ack(self, choice: int) -> None:
        """Done."""
        self.driver.ack(choice)

    @rule(choice=CHOICE, fate=st.sampled_from(FAILED))
    def fail(self, choice: int, fate: Fate) -> None:
        """Over."""
        self.driver.fail(choice, fate)

    @rule(choice=CHOICE, office=st.integers(0, OFFICES - 1))
    def hand_over(self, choice: int, office: int) -> None:
        """Tokens."""
        self.driver.hand_over(choice, office)

    @rule(office=CHOICE, other=st.none() | CHOICE, as_bytes=st.booleans())
    def deliver(self, office: int, other: int | None, *, as_bytes: bool) -> None:
        """Receipts."""
        self.driver.deliver(office, other, as_bytes=as_bytes)

    @rule(choice=CHOICE)
    def release(self, choice: int) -> None:
        """Settled otherwise."""
        self.driver.release(choice)

    @rule()
    def check_ends(self) -> None:
        """All of them."""
        self.driver.check_ends()

    @rule(choice=CHOICE)
    def close(self, choice: int) -> None:
        """A lost partition."""
        self.driver.close(choice)


TestTrees = Trees.TestCase
TestTrees.settings = SETTINGS


@pytest.mark.campaign
def test_many_rules_of_trees_agree_with_the_model() -> None:
    """Two thousand examples, which Hypothesis makes and shrinks."""
    run_state_machine_as_test(Trees, settings=AT_LENGTH)
