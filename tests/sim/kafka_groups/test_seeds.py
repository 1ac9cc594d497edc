"""The promises of the members of Kafka's groups hold in every simulated life of a group."""

from __future__ import annotations

import pytest

from tests.sim.kafka_groups.seeds import RUNNER


@pytest.mark.sim
@pytest.mark.parametrize(
    "seeds", [range(60), pytest.param(range(60, 2000), marks=pytest.mark.campaign)]
)
def test_every_seed_keeps_every_promise(seeds: range) -> None:
    """Answers that are lost, late and repeated; members that are killed, stopped and cut off; failovers; new topics."""
    RUNNER.check(seeds)


@pytest.mark.sim
def test_same_seed_gives_the_same_events() -> None:
    """A failing seed can be replayed."""
    assert RUNNER.digest(7) == RUNNER.digest(7)
