"""A process of a simulation that is stopped does nothing, and then goes on where it was."""

from __future__ import annotations

import asyncio

import pytest

from consumer_sdk.testing import Simulation, simulate
from tests.sim.kinesis.freezing import PROCESS, Freezer


async def tick(process: str, seen: list[tuple[str, float]], times: int) -> None:
    """Notes the time once a second; in a task that it makes, as a process has many."""

    async def note() -> None:
        seen.append((process, asyncio.get_running_loop().time()))

    _ = PROCESS.set(process)
    for _ in range(times):
        await asyncio.create_task(note())
        await asyncio.sleep(1)


def run(*stops: tuple[float, float]) -> list[tuple[str, float]]:
    """Two processes, of which the first is stopped from then to then; who ticked, and when."""

    async def main(_: Simulation) -> list[tuple[str, float]]:
        seen: list[tuple[str, float]] = []
        loop = asyncio.get_running_loop()
        freezer = Freezer(loop)
        for stop, go_on in stops:
            loop.call_at(stop, freezer.freeze, "a")
            loop.call_at(go_on, freezer.thaw, "a")
        await asyncio.gather(tick("a", seen, 4), tick("b", seen, 4))
        return seen

    return simulate(main)


def test_stopped_process_does_nothing_until_it_goes_on() -> None:
    """Its timers run out meanwhile, and what is late is done at once, in order."""
    assert [time for who, time in run((0.5, 2.75)) if who == "a"] == [0.0, 2.75, 3.75, 4.75]


def test_other_processes_go_on_while_one_is_stopped() -> None:
    """As they do on other hosts."""
    assert [time for who, time in run((0.5, 2.75)) if who == "b"] == [0.0, 1.0, 2.0, 3.0]


def test_stop_that_nobody_notices_changes_nothing() -> None:
    """It slept through it."""
    assert [time for who, time in run((0.25, 0.75)) if who == "a"] == [0.0, 1.0, 2.0, 3.0]


@pytest.mark.parametrize("second", [(1.25, 1.5), (1.25, 2.75)])
def test_process_that_is_stopped_twice_goes_on_after_both_stops(
    second: tuple[float, float],
) -> None:
    """The shorter one does not wake it, and the longer one's end wakes nobody who is awake."""
    ends = max(2.25, second[1])
    ticks = [time for who, time in run((0.5, 2.25), second) if who == "a"]
    assert ticks == [0.0, ends, ends + 1, ends + 2]


def test_process_knows_for_how_long_it_did_nothing() -> None:
    """From the first of its stops to the end of the last."""

    async def main(_: Simulation) -> tuple[float, float]:
        freezer = Freezer(asyncio.get_running_loop())
        freezer.freeze("a")
        await asyncio.sleep(0.5)
        freezer.freeze("a")
        await asyncio.sleep(0.25)
        first = freezer.thaw("a")
        await asyncio.sleep(2.0)
        return first, freezer.thaw("a")

    assert simulate(main) == (0.0, 2.75)
