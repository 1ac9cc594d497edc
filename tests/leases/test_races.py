"""Members that race for partitions: stopped, killed, cut off, too late, and on wrong clocks."""

from __future__ import annotations

from collections import Counter

import pytest

from consumer_sdk.testing import Simulation, simulate
from tests.leases.world import World

SEEDS = 20
ALL_SEEDS = 1000


async def live(simulation: Simulation) -> Counter[str]:
    """One life of a group."""
    return await World(simulation).live()


def race(seeds: range) -> Counter[str]:
    """Lives through them and counts what happened; an error names its seed."""
    counts = Counter[str]()
    for seed in seeds:
        try:
            counts += simulate(live, seed=seed, time_limit=300)
        except Exception as error:
            error.add_note(f"replay: race(range({seed}, {seed + 1}))")
            raise
    return counts


@pytest.mark.sim
def test_leases_keep_their_promises_in_every_race() -> None:
    """Whatever is stopped, killed, cut off, lost or released by an operator, with clocks hours apart.

    Writes of an owner of before never succeed, no checkpoint moves back, no record is skipped,
    children start after all their parents, what was drained in time is not repeated, and where
    clocks tick alike an owner gives up before another one takes. Afterwards each partition has an
    owner within two leases, and shares are even.
    """
    counts = race(range(SEEDS))
    assert (
        min(counts[name] for name in ("repeated", "handed over", "lost", "evicted", "refused")) > 0
    )


@pytest.mark.campaign
@pytest.mark.sim
def test_leases_keep_their_promises_in_a_thousand_races() -> None:
    """The same at length."""
    race(range(SEEDS, ALL_SEEDS))


@pytest.mark.sim
def test_same_seed_gives_the_same_race() -> None:
    """A failing seed can be replayed."""
    assert race(range(7, 10)) == race(range(7, 10))
