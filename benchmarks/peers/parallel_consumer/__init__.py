"""Confluent's Parallel Consumer: its jars are fetched and the program compiled when first used."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from benchmarks.contestant import Job
from benchmarks.java_program import JavaProgram
from consumer_sdk.testing.servers import Artifact, JarSet

__all__ = ["ParallelConsumer"]

_LIBRARY = JarSet(
    "parallel-consumer",
    (
        Artifact(
            org="io.confluent.parallelconsumer", name="parallel-consumer-core", revision="0.5.3.2"
        ),
    ),
)
_SOURCE = Path(__file__).parent / "ParallelConsumer.java"


class ParallelConsumer:
    """The program, ready to run.

    Raises:
        ContestantError: no Java, no PySpark (it ships the resolver), or jars that cannot be had.
    """

    def __init__(self, say: Callable[[str], None]) -> None:
        say("Parallel Consumer: fetching its jars and compiling, unless that was done before")
        self._program = JavaProgram(_SOURCE, _LIBRARY)

    def command(self, job: Job) -> list[str]:
        """The command of one run."""
        numbers = [job.concurrency, round(job.work * 1000), job.records, job.warmup]
        places = (job.servers, job.topic, job.group)
        target = [job.target] if job.target else []
        return self._program.command(*places, *map(str, numbers), *target, options=("-Xmx1g",))
