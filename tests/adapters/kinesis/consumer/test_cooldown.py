"""Shards that are left alone for a while."""

from __future__ import annotations

import asyncio
import math

import pytest

from consumer_sdk.adapters.kinesis.consumer.cooldown import FORGIVEN, LONGEST, Bench
from consumer_sdk.testing import Simulation, simulate


async def pauses(bench: Bench, times: int, rest: float) -> list[float]:
    """How long the shard is benched each time, with a rest between."""
    found = []
    for _ in range(times):
        bench.put("a")
        found.append(bench.pause())
        await asyncio.sleep(bench.pause())
        assert not bench.has("a")
        await asyncio.sleep(rest)
    return found


def test_shard_that_keeps_failing_is_left_alone_longer_each_time() -> None:
    """So that a shard which nobody can start does not occupy the group."""

    async def main(_: Simulation) -> None:
        found = await pauses(Bench(), 9, 0.0)
        assert found == sorted(found)
        assert [found[0], found[-1]] == pytest.approx([0.1, LONGEST])

    simulate(main)


def test_shard_that_was_well_for_a_while_is_forgiven() -> None:
    """Another trouble starts anew."""

    async def main(_: Simulation) -> None:
        bench = Bench()
        await pauses(bench, 9, 0.0)
        await asyncio.sleep(FORGIVEN + 1)
        assert await pauses(bench, 1, 0.0) == [pytest.approx(0.1)]

    simulate(main)


def test_other_shards_are_not_benched() -> None:
    """One bad shard delays no other."""

    async def main(_: Simulation) -> None:
        bench = Bench()
        assert bench.pause() == math.inf
        bench.put("a")
        assert (bench.has("a"), bench.has("b")) == (True, False)

    simulate(main)
