"""The promises of the Kinesis adapter hold in every simulated life of a group."""

from __future__ import annotations

import pytest

from consumer_sdk.runtime import checkpoint_cleanup
from tests.sim.kinesis.seeds import RUNNER


@pytest.mark.sim
@pytest.mark.parametrize(
    "seeds", [range(50), pytest.param(range(50, 2000), marks=pytest.mark.campaign)]
)
def test_every_seed_keeps_every_promise(seeds: range) -> None:
    """Kinesis traps 5, 6, 10, 12 to 15, 18, 20 to 23, 25 and 27, in seeded lives of groups."""
    RUNNER.check(seeds)


@pytest.mark.sim
@pytest.mark.parametrize("seed", [3805, 5462, 10280, 14451])
def test_seed_that_found_a_defect_passes(seed: int) -> None:
    """What each of them tells.

    3805: a close during which all processes were stopped. 5462: a process drains until the next one starts,
    which is refused for what the first has read, and was blamed for it. 10280: a process went on within its
    lease, and worked after that had run out, before its renewal was answered. 14451: of two stops at once
    the first one's end was taken for a wake, although the process was awake.
    """
    before = checkpoint_cleanup.FIRST, checkpoint_cleanup.PACE
    RUNNER.run_seed(seed)
    assert before == (
        checkpoint_cleanup.FIRST,
        checkpoint_cleanup.PACE,
    )  # other tests of this process want theirs


@pytest.mark.campaign
@pytest.mark.sim
def test_same_seed_gives_the_same_events_in_another_process() -> None:
    """A failing seed can be replayed: nothing depends on addresses, hashes or what ran before."""
    assert RUNNER.digests_elsewhere(1, 2, 3, 4)[1:] == RUNNER.digests_elsewhere(2, 3, 4)
