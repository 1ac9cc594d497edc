"""Fault injection: what a fault leaves behind, when faults end, and that a seed repeats them."""

from __future__ import annotations

import asyncio
import random

import pytest

from consumer_sdk.errors import ConfigurationError, TransientAdapterError
from consumer_sdk.testing import FaultRates, Faults, Simulation, simulate


def test_planned_fault_before_has_no_effect_and_after_has_one() -> None:
    """An error before means that nothing happened; after, that only the reply was lost."""

    async def main(_: Simulation) -> list[str]:
        effects: list[str] = []

        async def effect() -> None:
            effects.append("done")

        faults = Faults()
        for side in ("before", "after"):
            faults.fail_next("commit", side)
            with pytest.raises(TransientAdapterError, match="commit"):
                await faults.around("commit", effect)
            effects.append(side)
        await faults.around("commit", effect)
        return effects

    assert simulate(main) == ["before", "done", "after", "done"]


def test_faults_by_chance_repeat_with_the_seed_and_end_at_their_time() -> None:
    """The same seed gives the same faults; after ``until`` there are none."""

    async def main(simulation: Simulation) -> list[object]:
        faults = Faults(
            random.Random(simulation.seed), {"save": FaultRates(before=0.5, after=0.3)}, until=10
        )
        sides: list[object] = [faults.should_fail("save") for _ in range(50)]
        await asyncio.sleep(10)
        assert not any(faults.should_fail("save") for _ in range(50))
        return sides

    assert simulate(main, seed=3) == simulate(main, seed=3) != simulate(main, seed=4)


def test_delay_takes_virtual_time_on_both_sides_of_the_effect() -> None:
    """A call on its way may be overtaken, before it arrives and after."""

    async def main(simulation: Simulation) -> tuple[float, float]:
        async def effect() -> float:
            return simulation.clock.monotonic()

        faults = Faults(simulation.random, {"fetch": FaultRates(delay=1.0, max_delay=5.0)})
        arrived = await faults.around("fetch", effect)
        return arrived, simulation.clock.monotonic()

    arrived, returned = simulate(main)
    assert 0 < arrived < returned < 10


def test_call_of_a_dead_process_hangs_until_it_is_cancelled() -> None:
    """After `die` nothing has an effect any more."""

    async def main(_: Simulation) -> int:
        effects = 0

        async def effect() -> None:
            nonlocal effects
            effects += 1

        faults = Faults()
        faults.die()
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(faults.around("save", effect), 100)
        return effects

    assert simulate(main) == 0


@pytest.mark.parametrize("rates", [{"before": 1.5}, {"after": -1}, {"max_delay": -1.0}])
def test_impossible_rate_is_refused(rates: dict[str, float]) -> None:
    """A rate that is no probability is found when it is written down."""
    with pytest.raises(ConfigurationError):
        FaultRates(**rates)
