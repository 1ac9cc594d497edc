"""A process of a simulation that is stopped does nothing, and then goes on where it was."""

from __future__ import annotations

import asyncio

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


def run(stop: float, go_on: float) -> list[tuple[str, float]]:
    """Two processes, of which the first is stopped; who ticked, and when."""

    async def main(_: Simulation) -> list[tuple[str, float]]:
        seen: list[tuple[str, float]] = []
        loop = asyncio.get_running_loop()
        freezer = Freezer(loop)
        loop.call_at(stop, freezer.freeze, "a")
        loop.call_at(go_on, freezer.thaw, "a")
        await asyncio.gather(tick("a", seen, 4), tick("b", seen, 4))
        return seen

    return simulate(main)


def test_stopped_process_does_nothing_until_it_goes_on() -> None:
    """Its timers run out meanwhile, and what is late is done at once, in order."""
    assert [time for who, time in run(0.5, 2.75) if who == "a"] == [0.0, 2.75, 3.75, 4.75]


def test_other_processes_go_on_while_one_is_stopped() -> None:
    """As they do on other hosts."""
    assert [time for who, time in run(0.5, 2.75) if who == "b"] == [0.0, 1.0, 2.0, 3.0]


def test_stop_that_nobody_notices_changes_nothing() -> None:
    """It slept through it."""
    assert [time for who, time in run(0.25, 0.75) if who == "a"] == [0.0, 1.0, 2.0, 3.0]
