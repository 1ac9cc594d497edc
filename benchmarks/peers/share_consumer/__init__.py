"""Kafka's own `KafkaShareConsumer` in Java: its program is compiled when first used."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from benchmarks.contestant import Job
from benchmarks.java_program import JavaProgram
from consumer_sdk.testing.servers.kafka import KAFKA_JARS

__all__ = ["ShareConsumer"]

_SOURCE = Path(__file__).parent / "ShareConsumer.java"


class ShareConsumer:
    """The program, ready to run.

    Raises:
        ContestantError: no Java, no PySpark (it ships the resolver), or jars that cannot be had.
    """

    def __init__(self, say: Callable[[str], None]) -> None:
        say("Java's share consumer: fetching its jars and compiling, unless that was done before")
        self._program = JavaProgram(_SOURCE, KAFKA_JARS)

    def command(self, job: Job) -> list[str]:
        """The command of one run."""
        numbers = map(str, (job.poll, job.records, job.warmup))
        return self._program.command(
            job.servers, job.topic, job.group, *numbers, options=("-Xmx1g",)
        )
