"""The promises of the runtime hold in every simulated life of a group."""

from __future__ import annotations

import pytest

from tests.sim.seeds import RUNNER


@pytest.mark.sim
@pytest.mark.parametrize(
    "seeds", [range(200), pytest.param(range(200, 2000), marks=pytest.mark.campaign)]
)
def test_every_seed_keeps_every_promise(seeds: range) -> None:
    """T1-T7, T15-T22, T25-T28 on seeded schedules: faults at every seam, crashes, rebalances."""
    RUNNER.check(seeds)


@pytest.mark.sim
@pytest.mark.parametrize("seed", [10884, 19606, 20652])
def test_seed_that_found_a_defect_passes(seed: int) -> None:
    """What they found.

    10884: a restored retry that came due while a consumer was closed. 19606: a timer that the
    loop ran a nanosecond early. 20652: a reset to below the watermark, where the store reads on.
    """
    RUNNER.run_seed(seed)


@pytest.mark.sim
def test_same_seed_gives_the_same_events_in_another_process() -> None:
    """A failing seed can be replayed: nothing depends on addresses, hashes or what ran before."""
    assert RUNNER.digests_elsewhere(7, 8, 9)[1:] == RUNNER.digests_elsewhere(8, 9)
