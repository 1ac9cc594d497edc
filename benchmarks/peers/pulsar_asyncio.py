"""The client's own asyncio front: a receive and an acknowledgement for each message, both awaited."""

from __future__ import annotations

import pulsar
from pulsar.asyncio import Client

from benchmarks.contestant import Job, Measured, Meter, run
from benchmarks.pulsar_topic import NUMBER, check


async def contest(job: Job) -> Measured:
    """Acknowledge every message; the client holds that done when it has buffered it."""
    client = Client(job.servers, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
    consumer = await client.subscribe(
        job.topic,
        job.group,
        consumer_type=pulsar.ConsumerType.Shared,
        initial_position=pulsar.InitialPosition.Earliest,
    )
    meter = Meter(job)
    read = bytearray()
    while True:
        message = await consumer.receive()
        read += message.data()[:NUMBER]
        await consumer.acknowledge(message)
        if meter.tick() in meter.marks and meter.mark():
            break
    check(read, job.warmup + job.records)
    return meter.measured()


if __name__ == "__main__":
    run(contest)
