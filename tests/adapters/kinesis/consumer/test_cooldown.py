"""Shards that are left alone for a while."""

from __future__ import annotations

import asyncio
import math

import pytest

from consumer_sdk.adapters.kinesis.consumer.membership import FORGIVEN, LONGEST, Cooldown
from consumer_sdk.testing import Simulation, simulate


async def pauses(cooldown: Cooldown, times: int, rest: float) -> list[float]:
    """How long the shard is left alone each time, with a rest between."""
    found = []
    for _ in range(times):
        cooldown.add("a")
        found.append(cooldown.pause())
        await asyncio.sleep(cooldown.pause())
        assert not cooldown.has("a")
        await asyncio.sleep(rest)
    return found


def test_shard_that_keeps_failing_is_left_alone_longer_each_time() -> None:
    """So that a shard which nobody can start does not occupy the group."""

    async def main(_: Simulation) -> None:
        found = await pauses(Cooldown(), 9, 0.0)
        assert found == sorted(found)
        assert [found[0], found[-1]] == pytest.approx([0.1, LONGEST])

    simulate(main)


def test_shard_that_was_well_for_a_while_is_forgiven() -> None:
    """Another trouble starts anew."""

    async def main(_: Simulation) -> None:
        cooldown = Cooldown()
        await pauses(cooldown, 9, 0.0)
        await asyncio.sleep(FORGIVEN + 1)
        assert await pauses(cooldown, 1, 0.0) == [pytest.approx(0.1)]

    simulate(main)


def test_other_shards_are_not_left_alone() -> None:
    """One bad shard delays no other."""

    async def main(_: Simulation) -> None:
        cooldown = Cooldown()
        assert cooldown.pause() == math.inf
        cooldown.add("a")
        assert (cooldown.has("a"), cooldown.has("b")) == (True, False)

    simulate(main)
