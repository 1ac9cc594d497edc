"""confluent-kafka's ``ShareConsumer``: each record of a poll is accepted before the next poll, as it demands.

Acks go with the next poll. It blocks and is one thread, so that a handler that waits holds up all others.
"""

from __future__ import annotations

import time

from confluent_kafka import Messages, ShareConsumer
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # it exports them, but not to types
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
)

from benchmarks.contestant import Job, Measured, Meter, run


async def contest(job: Job) -> Measured:
    """Accept every record; the clock stops when the broker has all acks."""
    _begin_at_the_earliest(job)
    consumer = ShareConsumer(
        {
            "bootstrap.servers": job.servers,
            "group.id": job.group,
            "share.acknowledgement.mode": "explicit",
            "max.poll.records": job.poll,
        }
    )
    consumer.subscribe([job.topic])
    meter = Meter(job)
    while not _handle(consumer, consumer.poll(1.0), meter, job.work):
        pass
    failed = [error for error in consumer.commit_sync(60.0).values() if error is not None]
    if failed:
        raise RuntimeError(f"confluent-kafka: acks failed: {failed}")
    return meter.measured(until_now=True)


def _handle(consumer: ShareConsumer, messages: Messages, meter: Meter, work: float) -> bool:
    """Whether the last record was among them."""
    for message in messages:
        if (error := message.error()) is not None:
            raise RuntimeError(f"confluent-kafka: {error}")
        if work:
            time.sleep(work)
        consumer.acknowledge(message)
        if meter.tick() in meter.marks and meter.mark():
            return True
    return False


def _begin_at_the_earliest(job: Job) -> None:
    """A share group begins at the latest record, unless it was told."""
    setting = ConfigEntry(
        "share.auto.offset.reset", "earliest", incremental_operation=AlterConfigOpType.SET
    )
    group = ConfigResource(ResourceType.GROUP, job.group, incremental_configs=[setting])
    admin = AdminClient({"bootstrap.servers": job.servers})
    for done in admin.incremental_alter_configs([group]).values():
        done.result()


if __name__ == "__main__":
    run(contest)
