"""What our contestants on Pulsar share: how the consumer is made."""

from __future__ import annotations

from benchmarks.contestant import Job
from consumer_sdk import Consumer
from consumer_sdk.adapters.pulsar import PulsarAdapter

__all__ = ["make_consumer"]


def make_consumer(job: Job) -> Consumer:
    """A consumer of a shared subscription, new, from the topic's start."""
    adapter = PulsarAdapter(
        job.topic, service_url=job.servers, subscription=job.group, type="shared", log_level="error"
    )
    return Consumer(adapter)
