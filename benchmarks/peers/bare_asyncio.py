"""No broker at all: sleeping workers. The ceiling that the event loop sets."""

from __future__ import annotations

import asyncio

from benchmarks.contestant import Job, Measured, Meter, run


async def contest(job: Job) -> Measured:
    """Count wake-ups of as many workers as there may be handlers."""
    meter = Meter(job)

    async def work() -> None:
        while True:
            await asyncio.sleep(job.work)
            if meter.tick() in meter.marks:
                meter.mark()

    workers = [asyncio.create_task(work()) for _ in range(job.concurrency)]
    await meter.finished()
    for worker in workers:
        worker.cancel()
    await asyncio.gather(*workers, return_exceptions=True)
    return meter.measured()


if __name__ == "__main__":
    run(contest)
