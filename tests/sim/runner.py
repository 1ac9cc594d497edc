"""Runs seeds: one, or many in several processes."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from asyncio import CancelledError
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import sha256
from typing import Protocol

from consumer_sdk.testing import Simulation, simulate

__all__ = ["Failure", "Runner", "describe", "environment"]

SMALLEST_CHUNK, LARGEST_CHUNK = 50, 500
"""Seeds that one child process takes at a time: its start takes as long as six seeds."""

ENOUGH = 20
"""Failures after which no further seeds are started."""

Trace = Callable[[str], None]


class Scenario(Protocol):
    """What a seed makes."""

    async def live(self) -> int:
        """Runs it; returns how many deliveries there were."""
        ...


@contextmanager
def _quiet() -> Iterator[None]:
    """The consumers' warnings are what a simulation is about; others' tests want to see theirs."""
    logger = logging.getLogger("consumer_sdk")
    before = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        logger.setLevel(before)


@dataclass(frozen=True, slots=True)
class Failure:
    """A seed that failed, and how."""

    module: str
    seed: int
    error: str

    def __str__(self) -> str:
        return (
            f"seed {self.seed}: {self.error}\n  replay: python -m {self.module} --seed {self.seed}"
        )


@dataclass(frozen=True, slots=True)
class Runner:
    """One simulation.

    Attributes:
        module: what ``python -m`` starts it with.
        make: makes what a seed stands for.
        time_limit: virtual seconds that one may take.
    """

    module: str
    make: Callable[[Simulation, Trace | None], Scenario]
    time_limit: float = 2000

    def run_seed(self, seed: int, trace: Trace | None = None) -> int:
        """Simulates one seed; returns how many deliveries there were.

        Raises:
            Exception: a promise was broken, or the runtime failed.
        """

        async def main(simulation: Simulation) -> int:
            return await self.make(simulation, trace).live()

        with _quiet():
            return simulate(main, seed=seed, time_limit=self.time_limit)

    def digest(self, seed: int) -> str:
        """A hash of everything that happened."""
        found = sha256()
        self.run_seed(seed, lambda line: found.update(line.encode()))
        return found.hexdigest()

    def try_seed(self, seed: int) -> Failure | None:
        """None if the seed passes."""
        try:
            self.run_seed(seed)
        except (Exception, CancelledError) as error:  # noqa: BLE001 - whatever it is, it is reported with its seed
            return Failure(self.module, seed, describe(error))
        return None

    def run_seeds(self, first: int, count: int, jobs: int, report: Trace) -> int:
        """Runs seeds in child processes; returns how many failed.

        Each child has PYTHONHASHSEED=0, as the replay has: sets of bytes keep their order.
        """
        size = min(max(count // (8 * jobs), SMALLEST_CHUNK), LARGEST_CHUNK)
        chunks = [
            range(at, min(at + size, first + count)) for at in range(first, first + count, size)
        ]
        running: list[subprocess.Popen[str]] = []
        failed = 0
        while (chunks and failed < ENOUGH) or running:
            while chunks and len(running) < jobs and failed < ENOUGH:
                running.append(self._start(chunks.pop(0)))
            child = running.pop(0)
            output, _ = child.communicate()
            found = output.count("replay:")
            if found or child.returncode:
                report(output.strip() or f"a child ended with {child.returncode}")
            failed += found or bool(child.returncode)
        return failed

    def check(self, seeds: range) -> None:
        """Runs seeds on all processors.

        Raises:
            AssertionError: one fails.
        """
        failures: list[str] = []
        failed = self.run_seeds(seeds.start, len(seeds), os.cpu_count() or 1, failures.append)
        assert not failed, "\n".join(failures)

    def digests_elsewhere(self, *seeds: int) -> list[str]:
        """The hashes of some seeds, one after the other in another process."""
        code = f"import sys; from {self.module}.seeds import RUNNER; "
        code += "print(*map(RUNNER.digest, map(int, sys.argv[1:])))"
        command = [sys.executable, "-c", code, *map(str, seeds)]
        found = subprocess.run(
            command, stdout=subprocess.PIPE, text=True, check=True, env=environment()
        )
        return found.stdout.split()

    def _start(self, seeds: range) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-m", self.module, "--chunk", str(seeds.start), str(len(seeds))],
            stdout=subprocess.PIPE,
            text=True,
            env=environment(),
        )


def describe(error: BaseException) -> str:
    """The innermost error of a group, in one line."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return f"{type(error).__name__}: {error}".splitlines()[0]


def environment() -> dict[str, str]:
    """This process's, with a fixed hash seed."""
    return {**os.environ, "PYTHONHASHSEED": "0"}
