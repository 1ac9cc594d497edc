"""A bare loop of confluent-kafka: batches of 500 that librdkafka decodes in threads of its own, nothing acked."""

from __future__ import annotations

from confluent_kafka import Consumer

from benchmarks.contestant import Job, Measured, Meter, run


async def contest(job: Job) -> Measured:
    """Count records batch by batch. The client blocks, and nothing else is on the event loop."""
    consumer = Consumer(
        {
            "bootstrap.servers": job.servers,
            "group.id": job.group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            # By default it stops fetching for a second whenever 100 000 records wait to be consumed.
            "fetch.queue.backoff.ms": 1,
        }
    )
    consumer.subscribe([job.topic])
    meter = Meter(job)
    while True:
        messages = consumer.consume(500, timeout=1.0)
        for message in messages:
            if (error := message.error()) is not None:
                raise RuntimeError(f"confluent-kafka: {error}")
        if meter.count(len(messages)):
            return meter.measured()


if __name__ == "__main__":
    run(contest)
