"""Starting a contestant and reading what it measured."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from benchmarks.contestant import Job

__all__ = [
    "ROOT",
    "ContestantError",
    "Result",
    "last_line",
    "measure",
    "python_contestant",
    "tail",
]

ROOT = Path(__file__).resolve().parent.parent
_TAIL = 15
_TIMEOUT = 180.0


class ContestantError(Exception):
    """A contestant failed or is stuck; the text ends with what it wrote last."""


@dataclass(frozen=True, slots=True)
class Result:
    """What one contestant printed.

    Attributes:
        records: how many were timed, after the warm-up.
        seconds: how long they took.
        cpu_seconds: how long the process computed in that time, on all cores.
        warmup: how many there were before.
        warmup_seconds: how long those took.
        rss_mb: the peak memory of the contestant's process; None where the system does not say.
    """

    records: int
    seconds: float
    cpu_seconds: float
    warmup: int
    warmup_seconds: float
    rss_mb: float | None

    @property
    def rate(self) -> float:
        """Records per second, after the warm-up."""
        return self.records / self.seconds

    @property
    def cpu_us(self) -> float:
        """Microseconds that the process computed for each record."""
        return self.cpu_seconds / self.records * 1e6

    @property
    def cold_rate(self) -> float:
        """Records per second from the very first record."""
        return (self.warmup + self.records) / (self.warmup_seconds + self.seconds)


def python_contestant(module: str, job: Job) -> list[str]:
    """The command that runs ``module`` in a fresh interpreter."""
    return [sys.executable, "-m", module, json.dumps(asdict(job))]


async def measure(command: Sequence[str], *, timeout: float = _TIMEOUT) -> Result:
    """Run a contestant to its end.

    Raises:
        ContestantError: as `last_line`, or what it printed is no result.
    """
    line = await last_line(command, timeout=timeout)
    try:
        return Result(**json.loads(line))
    except (ValueError, TypeError) as error:
        raise ContestantError(f"printed no result: {line}") from error


async def last_line(command: Sequence[str], *, timeout: float = _TIMEOUT) -> str:
    """Run a program to its end; the last line that it printed.

    Raises:
        ContestantError: it failed, printed nothing or took longer than ``timeout`` seconds.
    """
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(*command, stdout=pipe, stderr=pipe, cwd=ROOT)
    try:
        output, errors = await asyncio.wait_for(process.communicate(), timeout)
    except TimeoutError:
        raise ContestantError(f"no result after {timeout:g} s: {' '.join(command)}") from None
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    lines = output.decode().splitlines()
    if process.returncode or not lines:
        raise ContestantError(tail(errors.decode(errors="replace")) or "printed nothing")
    return lines[-1]


def tail(text: str) -> str:
    """The last lines of what a program wrote."""
    return "\n".join(text.strip().splitlines()[-_TAIL:])
