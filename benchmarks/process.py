"""Starting a contestant and reading what it measured."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from benchmarks.contestant import Job

__all__ = ["ROOT", "ContestantError", "Result", "measure", "python_contestant", "tail"]

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
        ContestantError: it failed, printed no result or took longer than ``timeout`` seconds.
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
    if process.returncode:
        raise ContestantError(tail(errors.decode(errors="replace")))
    return _parse(output.decode(), errors.decode(errors="replace"))


def _parse(output: str, errors: str) -> Result:
    try:
        return Result(**json.loads(output.splitlines()[-1]))
    except (IndexError, ValueError, TypeError) as error:
        raise ContestantError(f"printed no result: {tail(output + errors)}") from error


def tail(text: str) -> str:
    """The last lines of what a program wrote."""
    return "\n".join(text.strip().splitlines()[-_TAIL:])
