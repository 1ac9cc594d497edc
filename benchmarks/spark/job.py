"""What a driver is asked to do, and the command that does it."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict, dataclass

__all__ = ["SparkJob", "command"]


@dataclass(frozen=True, slots=True, kw_only=True)
class SparkJob:
    """What a driver is asked to do.

    Attributes:
        servers: where Kafka listens.
        topic: what to read.
        rows: how many the topic holds.
        rounds: how often each contestant runs, after a warm-up that does not count.
        trigger_rows: rows of one micro-batch of the streams.
        group: prefix of the groups that ours commits to.
        seconds: of a measurement that has no end of its own.
        contestants: who runs.
        value_bytes: of all values; 0 where each has 100.
        has_batches: throughput is measured of batches.
        has_streams: throughput is measured of streams.
        is_smoke: the figures do not matter: Java compiles quickly rather than well.
    """

    servers: str
    topic: str
    rows: int = 0
    rounds: int = 3
    trigger_rows: int = 400_000
    group: str = ""
    seconds: float = 10.0
    contestants: tuple[str, ...] = ()
    value_bytes: int = 0
    has_batches: bool = True
    has_streams: bool = True
    is_smoke: bool = False


def command(module: str, job: SparkJob) -> list[str]:
    """The command that runs a driver of this package."""
    return [sys.executable, "-m", f"benchmarks.spark.{module}", json.dumps(asdict(job))]
