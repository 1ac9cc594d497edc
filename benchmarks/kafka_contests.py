"""Who takes part in the Kafka benchmark, with how many records, and in which variants.

The JVM is given a warm-up of three seconds or more, in which it compiles. The faster a contestant
is, the more records it gets, so that each is timed for two seconds or more.
"""

from __future__ import annotations

import importlib.util
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from benchmarks.contestant import Job
from benchmarks.harness import Command, Contestant
from benchmarks.peers.parallel_consumer import ParallelConsumer
from benchmarks.process import python_contestant

__all__ = ["AIMS", "LONGEST", "RATIOS", "SETUPS", "TARGET", "Field", "contests"]

_GC = 50_000
SETUPS: dict[str, dict[str, Any]] = {
    "uvloop, rare gc": {"loop": "uvloop", "gc_threshold": _GC},
    "uvloop": {"loop": "uvloop"},
    "asyncio": {"loop": "asyncio"},
    "asyncio, rare gc": {"loop": "asyncio", "gc_threshold": _GC},
}
"""How a Python contestant may be run, likeliest first; each tried."""
if importlib.util.find_spec("uvloop") is None:
    SETUPS = {name: setup for name, setup in SETUPS.items() if setup["loop"] == "asyncio"}
TARGET = "-outputs"
"""What the topic of outputs is called, behind the name of the one that is read."""
_MANY = Job(warmup=200_000, records=2_000_000)
_NOOP = Job(warmup=100_000, records=1_000_000, concurrency=256)
_FEW = Job(warmup=5_000, records=30_000)
_OUTPUTS = Job(warmup=50_000, records=200_000, concurrency=1_000, target=TARGET)
_STEADY = Job(warmup=10_000, records=100_000, work=0.010, concurrency=256)
LONGEST = _MANY.warmup + _MANY.records
"""How many records the topic must hold, less what a client fetches beyond the last one."""

AIMS: dict[str, float | None] = {
    "batches_vs_getmany": 1.1,
    "messages_vs_getmany": 0.85,
    "run_noop_vs_getmany": 0.55,
    "batches_vs_confluent": 0.9,
    "run_noop_vs_faststream": 15,
    "run_10ms_256_vs_ideal": 0.93,
    "run_0ms_vs_pc": None,
    "run_1ms_vs_pc": 3,
    "run_10ms_vs_pc": 3,
    "run_100ms_vs_pc": 2,
    "transactions_vs_pc": 1.5,
    "transactions_cost": None,
}
"""What each ratio should reach; None where nothing was promised."""

RATIOS: dict[str, tuple[str, str]] = {
    "batches_vs_getmany": ("ours_batches", "aiokafka_getmany"),
    "messages_vs_getmany": ("ours_messages", "aiokafka_getmany"),
    "run_noop_vs_getmany": ("ours_run_noop", "aiokafka_getmany"),
    "batches_vs_confluent": ("ours_batches", "confluent_consume"),
    "run_noop_vs_faststream": ("ours_run_noop", "faststream_noop"),
    "run_0ms_vs_pc": ("ours_run_noop", "parallel_consumer_0ms"),
    "run_1ms_vs_pc": ("ours_run_1ms", "parallel_consumer_1ms"),
    "run_10ms_vs_pc": ("ours_run_10ms", "parallel_consumer_10ms"),
    "run_100ms_vs_pc": ("ours_run_100ms", "parallel_consumer_100ms"),
    "transactions_vs_pc": ("ours_transactions", "parallel_consumer_transactions"),
    "transactions_cost": ("ours_transactions", "ours_publish"),
}


@dataclass(frozen=True, slots=True)
class Field:
    """Makes contestants that all read one topic.

    Attributes:
        parallel_consumer: the program, or None where it cannot be had; it is left out then.
    """

    servers: str
    topic: str
    parallel_consumer: ParallelConsumer | None = None

    def python(
        self, name: str, module: str, job: Job, concurrencies: Sequence[int] = (0,)
    ) -> Contestant:
        """A contestant in Python: a variant for each set-up and each concurrency."""
        variants = {
            setup + (f", {concurrency} handlers" if concurrency else ""): self.command(
                lambda job: python_contestant(f"benchmarks.{module}", job),
                replace(job, concurrency=concurrency or job.concurrency, **options),
            )
            for concurrency in concurrencies
            for setup, options in SETUPS.items()
        }
        return Contestant(name, variants)

    def jvm(self, name: str, job: Job, threads: Sequence[int]) -> list[Contestant]:
        """Parallel Consumer: a variant for each number of threads."""
        if self.parallel_consumer is None:
            return []
        make = self.parallel_consumer.command
        variants = {
            f"{number} threads": self.command(make, replace(job, concurrency=number))
            for number in threads
        }
        return [Contestant(name, variants)]

    def command(self, make: Callable[[Job], list[str]], job: Job) -> Command:
        """Makes the command of a run, which has a group of its own."""

        def command(share: float) -> list[str]:
            return make(
                replace(
                    job,
                    servers=self.servers,
                    topic=self.topic,
                    target=job.target and self.topic + job.target,
                    group=f"benchmark-{uuid.uuid4().hex}",
                    records=int(job.records * share),
                    warmup=int(job.warmup * share),
                )
            )

        return command


def contests(field: Field) -> dict[str, list[Contestant]]:
    """Title → who competes; each contest is run on its own, one after the other."""
    return {
        "no work": [
            field.python("aiokafka_getmany", "peers.aiokafka_getmany", _MANY),
            field.python("confluent_consume", "peers.confluent_consume", _MANY),
            field.python("ours_batches", "ours.kafka_batches", _MANY),
            field.python("ours_messages", "ours.kafka_messages", _MANY),
            field.python("ours_run_noop", "ours.kafka_run", _NOOP),
            field.python("faststream_noop", "peers.faststream_noop", _FEW),
            *field.jvm(
                "parallel_consumer_0ms", Job(warmup=300_000, records=200_000), (256, 1_000, 4_000)
            ),
        ],
        "10 ms of work, 256 handlers": [
            field.python("ours_run_10ms_256", "ours.kafka_run", _STEADY),
            field.python("bare_asyncio_10ms_256", "peers.bare_asyncio", _STEADY),
        ],
        "an output for each record": [
            field.python("ours_transactions", "ours.kafka_transactions", _OUTPUTS),
            field.python("ours_publish", "ours.kafka_publish", _OUTPUTS),
            *field.jvm(
                "parallel_consumer_transactions",
                Job(warmup=100_000, records=100_000, target=TARGET),
                (256, 1_000),
            ),
        ],
        "1 ms of work": [
            field.python(
                "ours_run_1ms",
                "ours.kafka_run",
                Job(warmup=150_000, records=600_000, work=0.001),
                (1_000,),
            ),
            *field.jvm(
                "parallel_consumer_1ms",
                Job(warmup=150_000, records=150_000, work=0.001),
                (256, 1_000, 4_000),
            ),
        ],
        "10 ms of work": [
            field.python(
                "ours_run_10ms",
                "ours.kafka_run",
                Job(warmup=100_000, records=400_000, work=0.010),
                (4_000,),
            ),
            *field.jvm(
                "parallel_consumer_10ms",
                Job(warmup=100_000, records=100_000, work=0.010),
                (1_000, 256, 4_000),
            ),
        ],
        "100 ms of work": [
            field.python(
                "ours_run_100ms",
                "ours.kafka_run",
                Job(warmup=60_000, records=80_000, work=0.100),
                (5_000,),
            ),
            *field.jvm(
                "parallel_consumer_100ms",
                Job(warmup=60_000, records=60_000, work=0.100),
                (4_000, 1_000, 256),
            ),
        ],
    }
