"""FastStream with a handler that does nothing, its dependency injection and its log turned off."""

from __future__ import annotations

from typing import Any

from faststream.kafka import KafkaBroker

from benchmarks.contestant import Job, Measured, Meter, run


async def contest(job: Job) -> Measured:
    """Count records in the handler."""
    meter = Meter(job)

    async def handle(body: Any) -> None:  # noqa: ARG001 - the framework's signature
        if meter.tick() in meter.marks:
            meter.mark()

    broker = KafkaBroker(job.servers, apply_types=False, logger=None)
    broker.subscriber(job.topic, group_id=job.group, auto_offset_reset="earliest")(handle)
    await broker.start()
    await meter.finished()
    return meter.measured()


if __name__ == "__main__":
    run(contest)
