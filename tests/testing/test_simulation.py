"""The simulation loop: virtual time, deadlocks, leaks, exact repetition."""

from __future__ import annotations

import asyncio
import threading
from contextlib import suppress
from time import perf_counter

import pytest

from consumer_sdk.testing.simulation import (
    Simulation,
    SimulationDeadlockError,
    SimulationLeakError,
    SimulationLoop,
    SimulationTimeoutError,
    simulate,
)


def test_long_sleep_takes_no_real_time_and_moves_both_clocks() -> None:
    """An hour of sleep is an hour on the loop's and the wall clock, and no time at all."""

    async def main(simulation: Simulation) -> tuple[float, float]:
        await asyncio.sleep(3600)
        return simulation.clock.monotonic(), simulation.clock.wall()

    started = perf_counter()
    assert simulate(main, epoch=1000.0) == (3600.0, 4600.0)
    assert perf_counter() - started < 600


def test_wait_for_nothing_raises_deadlock_naming_the_line() -> None:
    """When nobody can wake up, the error names the task and where it waits."""

    async def stuck() -> None:
        await asyncio.get_running_loop().create_future()

    async def main(_: Simulation) -> None:
        await asyncio.create_task(stuck(), name="the-stuck-one")

    with pytest.raises(SimulationDeadlockError, match=r"the-stuck-one.*stuck"):
        simulate(main)


def test_busy_loop_raises_deadlock() -> None:
    """A task that spins without any time passing is found."""

    async def main(_: Simulation) -> None:
        while True:
            await asyncio.sleep(0)

    with pytest.raises(SimulationDeadlockError, match="spins"):
        simulate(main)


def test_task_that_waits_for_the_rest_of_its_time_gets_there() -> None:
    """A loop runs a timer a nanosecond early; who then waits for what is left is not stuck."""

    async def main(_: Simulation) -> float:
        loop = asyncio.get_running_loop()
        loop.call_later(1.0 - 1e-12, lambda: None)
        while loop.time() < 1.0:
            with suppress(TimeoutError):
                async with asyncio.timeout_at(1.0):
                    await asyncio.Event().wait()
        return loop.time()

    assert simulate(main) == 1.0


def test_time_limit_ends_an_endless_program() -> None:
    """A program that never ends is stopped at its virtual time limit."""

    async def main(_: Simulation) -> None:
        while True:
            await asyncio.sleep(1)

    with pytest.raises(SimulationTimeoutError):
        simulate(main, time_limit=10)


def test_leaked_task_fails_the_run() -> None:
    """A task left behind is an error that names it."""
    tasks: list[asyncio.Task[None]] = []

    async def main(_: Simulation) -> None:
        tasks.append(asyncio.create_task(asyncio.sleep(1), name="left-behind"))

    with pytest.raises(SimulationLeakError, match="left-behind"):
        simulate(main)


def test_exception_nobody_looked_at_fails_the_run() -> None:
    """An exception that only the loop's handler sees is an error with its cause."""

    async def boom() -> None:
        raise ValueError("boom")

    async def main(_: Simulation) -> None:
        task = asyncio.create_task(boom())
        await asyncio.sleep(1)
        del task

    with pytest.raises(SimulationLeakError) as caught:
        simulate(main)
    assert isinstance(caught.value.__cause__, ValueError)


def test_call_from_another_thread_arrives() -> None:
    """A thread can wake the loop, and an executor job freezes virtual time."""

    async def main(simulation: Simulation) -> float:
        loop = asyncio.get_running_loop()
        future = loop.create_future()
        thread = threading.Thread(target=loop.call_soon_threadsafe, args=(future.set_result, 1))
        thread.start()
        await future
        thread.join()
        async with asyncio.timeout(5):
            await asyncio.to_thread(lambda: threading.Event().wait(0.05))
        return simulation.clock.monotonic()

    assert simulate(main) == 0.0


def test_same_seed_repeats_exactly_and_another_differs() -> None:
    """A run with task groups, timeouts and random waits depends on its seed alone."""

    async def main(simulation: Simulation) -> list[tuple[float, int]]:
        trace: list[tuple[float, int]] = []

        async def worker(number: int) -> None:
            try:
                await asyncio.sleep(simulation.random.random() * 10)
            finally:
                trace.append((simulation.clock.monotonic(), number))

        async def workers() -> None:
            async with asyncio.TaskGroup() as group:
                for number in range(50):
                    group.create_task(worker(number))

        with pytest.raises(TimeoutError):
            await asyncio.wait_for(workers(), 5)
        return trace

    assert simulate(main, seed=1) == simulate(main, seed=1)
    assert simulate(main, seed=1) != simulate(main, seed=2)


def test_plain_loop_is_usable_without_the_runner() -> None:
    """The loop alone works with asyncio.Runner."""
    with asyncio.Runner(loop_factory=SimulationLoop) as runner:
        runner.run(asyncio.sleep(100))
        assert runner.get_loop().time() == 100
