"""A bare loop on the client's blocking front: batches of 500, each message acknowledged."""

from __future__ import annotations

import pulsar

from benchmarks.contestant import Job, Measured, Meter, run
from benchmarks.pulsar_topic import NUMBER, check

_QUEUE = 1000
"""Messages that are sent ahead, if the client is not told otherwise."""

_WAIT = 20
"""Milliseconds that a batch is waited for; none is, while there are messages."""


async def contest(job: Job) -> Measured:
    """Acknowledge every message; the client holds that done when it has buffered it."""
    client = pulsar.Client(job.servers, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
    consumer = client.subscribe(
        job.topic,
        job.group,
        consumer_type=pulsar.ConsumerType.Shared,
        initial_position=pulsar.InitialPosition.Earliest,
        receiver_queue_size=job.receiver_queue or _QUEUE,
        batch_receive_policy=pulsar.ConsumerBatchReceivePolicy(500, -1, _WAIT),
    )
    meter = Meter(job)
    read = bytearray()
    while True:
        messages = consumer.batch_receive()
        for message in messages:
            read += message.data()[:NUMBER]
            consumer.acknowledge(message)
        if meter.count(len(messages)):
            break
    check(read, job.warmup + job.records)
    return meter.measured()


if __name__ == "__main__":
    run(contest)
