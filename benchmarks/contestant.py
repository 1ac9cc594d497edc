"""The frame of a contestant: a program that measures one thing and prints one line of JSON.

Every measurement runs in an interpreter of its own, so that its peak memory is its own and no
garbage, event loop or warmed-up cache leaks from one contestant into the next. A contestant says
what it did (`Measured`); rates and medians are made by the parent (`benchmarks.harness`).
"""

from __future__ import annotations

import asyncio
import gc
import itertools
import json
import logging
import os
import re
import sys
import time
from collections.abc import Awaitable, Callable
from dataclasses import asdict, dataclass
from pathlib import Path

__all__ = ["Job", "Measured", "Meter", "run"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """What a contestant is asked to do.

    Attributes:
        loop: the event loop's name, ``asyncio`` or ``uvloop``.
        gc_threshold: allocations between collections of the youngest generation; Python's own
            if 0.
        servers: where Kafka listens.
        topic: what to consume, from its earliest record.
        group: a group that nobody used before.
        records: how many records are timed, after the first `warmup` (one at least).
        concurrency: how many handlers may run at a time.
        work: how long a handler sleeps, in seconds.
        partitions: of the topic, where the contestant makes it.
        receiver_queue: messages that Pulsar sends ahead; the client's own default if 0.
        workers: processes.
        target: a topic that each record's output is written to; empty for none.
        poll: how many records a member of a share group asks for at a time.
    """

    records: int
    warmup: int
    loop: str = "asyncio"
    gc_threshold: int = 0
    servers: str = ""
    topic: str = ""
    group: str = ""
    concurrency: int = 1
    work: float = 0.0
    partitions: int = 1
    receiver_queue: int = 0
    workers: int = 1
    target: str = ""
    poll: int = 500


@dataclass(frozen=True, slots=True)
class Measured:
    """What a contestant did.

    Attributes:
        records: done after the warm-up.
        seconds: that they took.
        warmup: records of the warm-up.
        warmup_seconds: that those took.
        cpu_seconds: that the process computed, on all cores, after the warm-up.
    """

    records: int
    seconds: float
    cpu_seconds: float
    warmup: int
    warmup_seconds: float


class Meter:
    """Counts records that are done; reads the clock at the first, after the warm-up, at the last.

    The clock is read where a record is counted, not by the task that waits for the last one: a
    client whose buffers are full may keep the loop busy long after.

    A handler that costs a microsecond must not pay as much for being counted, so that it asks
    ``if meter.tick() in meter.marks: meter.mark()``.

    Attributes:
        tick: one more record is done; returns how many were done before.
        marks: the numbers that `mark` must hear of.
    """

    def __init__(self, job: Job) -> None:
        self.tick = itertools.count().__next__
        self.marks = (0, job.warmup, job.warmup + job.records)
        self._job = job
        self._count = 0
        self._times: list[tuple[float, float]] = []
        self._finished = asyncio.Event()

    def mark(self) -> bool:
        """The next mark is reached; whether it was the last."""
        self._times.append((time.perf_counter(), time.process_time()))
        if len(self._times) < len(self.marks):
            return False
        self._finished.set()
        return True

    def count(self, records: int) -> bool:
        """``records`` more are done; whether the last is among them. For those with batches."""
        before, self._count = self._count, self._count + records
        for mark in self.marks:
            if before <= mark < self._count:
                self.mark()
        return self._finished.is_set()

    async def finished(self) -> None:
        """Wait until the last record is counted."""
        await self._finished.wait()

    def measured(self, *, until_now: bool = False) -> Measured:
        """What was timed; ``until_now`` to include what happened since the last record."""
        if until_now:
            self._times[-1] = (time.perf_counter(), time.process_time())
        (began, _), (warm, cpu_warm), (ended, cpu_ended) = self._times
        return Measured(
            records=self._job.records,
            seconds=ended - warm,
            cpu_seconds=cpu_ended - cpu_warm,
            warmup=self._job.warmup,
            warmup_seconds=warm - began,
        )


def run(contest: Callable[[Job], Awaitable[Measured]]) -> None:
    """Run the job in the program's first argument, print what was measured, and end at once.

    How long a client takes to close is not measured, and some take minutes under load.
    """
    logging.disable(logging.WARNING)
    job = Job(**json.loads(sys.argv[1]))
    if job.gc_threshold:
        gc.set_threshold(job.gc_threshold, 20, 100)
    with asyncio.Runner(loop_factory=_loop_factory(job.loop)) as runner:
        measured = runner.run(_as_coroutine(contest, job))
        print(json.dumps(asdict(measured) | {"rss_mb": _peak_rss_mb()}), flush=True)
        os._exit(0)


async def _as_coroutine(contest: Callable[[Job], Awaitable[Measured]], job: Job) -> Measured:
    return await contest(job)


def _loop_factory(name: str) -> Callable[[], asyncio.AbstractEventLoop]:
    if name == "asyncio":
        return asyncio.new_event_loop
    import uvloop

    return uvloop.new_event_loop


def _peak_rss_mb() -> float | None:
    """The peak of this program alone; ``getrusage`` would include what the parent once had."""
    try:
        status = Path("/proc/self/status").read_text(encoding="ascii")
    except OSError:
        return None
    peak = re.search(r"^VmHWM:\s+(\d+) kB$", status, re.MULTILINE)
    return round(int(peak[1]) / 1024, 1) if peak else None
