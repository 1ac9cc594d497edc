"""What our contestants on Kinesis share: how the consumer is made, and how its records are checked."""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks.contestant import Job
from benchmarks.kinesis.records import check
from consumer_sdk import Consumer
from consumer_sdk.adapters.kinesis import KinesisAdapter, Limits
from consumer_sdk.stores import MemoryStore

__all__ = ["check_values", "make_consumer"]

UNLIMITED = Limits(calls=1_000, bytes=float("inf"))


def make_consumer(job: Job) -> Consumer:
    """A member of a group, with leases and checkpoints in memory; the server has no limits."""
    adapter = KinesisAdapter(
        job.topic,
        group=job.group,
        region_name="us-east-1",
        endpoint_url=job.servers,
        aws_access_key_id="any",
        aws_secret_access_key="any",  # noqa: S106 - the server takes what it gets
        limits=UNLIMITED,
    )
    return Consumer(adapter, store=MemoryStore(), start="earliest")


def check_values(job: Job, values: Sequence[bytes | None]) -> None:
    """Raises `MissingRecordsError` unless all were read, in order."""
    check([value or b"" for value in values], job.warmup + job.records)
