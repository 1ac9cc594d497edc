"""Ours: ``consumer-sdk run --workers N`` of a handler that computes; in a file, each worker counts.

The clock starts when every worker has done its warm-up, so that no joining is timed, and stops after a
number of records of all. There are more records than that: no worker runs out of them.
"""

from __future__ import annotations

import asyncio
import mmap
import os
import struct
import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.contestant import Job, Measured, run
from consumer_sdk import Message
from consumer_sdk.testing.servers import guard

COUNTS = "BENCHMARK_COUNTS"
"""The environment variable that names the file."""
WORK = 12_000
"""Turns of an empty loop: some 200 µs. No clock ends them, so that what is computed is the same."""
SLOT = struct.Struct("<qd")
"""Of a worker: records, and seconds that it computed."""
LOOK = 0.005


class _Slots:
    def __init__(self, path: str) -> None:
        with Path(path).open("r+b") as file:
            self._map = mmap.mmap(file.fileno(), 0)

    def read(self) -> list[tuple[int, float]]:
        return list(SLOT.iter_unpack(self._map[:]))

    def write(self, number: int, records: int) -> None:
        SLOT.pack_into(self._map, number * SLOT.size, records, time.process_time())


_number = int(os.environ.get("CONSUMER_SDK_WORKER", "0"))  # one alone has no number
_slots = _Slots(os.environ[COUNTS]) if COUNTS in os.environ else None
_done = 0


async def handle(_message: Message) -> None:
    """Computes."""
    global _done  # noqa: PLW0603 - a handler is a function
    for _ in range(WORK):
        pass
    _done += 1
    if _slots is not None:
        _slots.write(_number, _done)


async def contest(job: Job) -> Measured:
    """Counts what all workers do."""
    with TemporaryDirectory() as folder:
        counts = Path(folder) / "counts"
        counts.write_bytes(bytes(SLOT.size * job.workers))
        async with _service(job, counts):
            return await _measured(job, _Slots(str(counts)))


@asynccontextmanager
async def _service(job: Job, counts: Path) -> AsyncIterator[None]:
    """Ends with the last worker: the next contestant has the machine for itself.

    If this process is killed, so is the service, whose workers end by themselves.
    """
    url = f"kafka://{job.servers}/{job.topic}?group={job.group}"
    begun, begins = os.pipe()
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, guard.__file__, str(os.getpid()), str(begins)),
        *(sys.executable, "-m", "consumer_sdk", "run", "benchmarks.ours.kafka_workers:handle"),
        *("--url", url, "--workers", str(job.workers)),
        stderr=asyncio.subprocess.DEVNULL,
        env={**os.environ, COUNTS: str(counts)},
        pass_fds=[begins],
    )
    os.close(begins)
    os.close(begun)
    try:
        yield
    finally:
        process.terminate()
        await process.wait()


async def _measured(job: Job, slots: _Slots) -> Measured:
    async def until(is_so: Callable[[], bool]) -> tuple[float, int, float]:
        while not is_so():  # noqa: ASYNC110 - of other processes
            await asyncio.sleep(LOOK)
        records, cpu = zip(*slots.read(), strict=True)
        return time.perf_counter(), sum(records), sum(cpu)

    first, _, _ = await until(lambda: any(records for records, _ in slots.read()))
    began, before, cpu_began = await until(
        lambda: min(records for records, _ in slots.read()) >= job.warmup
    )
    ended, after, cpu_ended = await until(
        lambda: sum(records for records, _ in slots.read()) >= before + job.records
    )
    return Measured(
        records=after - before,
        seconds=ended - began,
        cpu_seconds=cpu_ended - cpu_began,
        warmup=before,
        warmup_seconds=began - first,
    )


if __name__ == "__main__":
    run(contest)
