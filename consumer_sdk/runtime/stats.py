"""The snapshot that `Consumer.stats` returns."""

from __future__ import annotations

from dataclasses import dataclass

from consumer_sdk.records import Partition

__all__ = ["ConsumerStats"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerStats:
    """What a consumer has done and holds.

    Attributes:
        partitions: held now.
        paused: those whose fetch is paused, by back-pressure or for their holes.
        over_hole_budget: those that have more holes, or older ones, than they may.
        fetched: records tracked, without re-fetches.
        suppressed: records fetched again although they were settled or known; not delivered.
        settled: records settled.
        in_flight: records unsettled now, and their estimated bytes.
        retrying: records waiting for their next delivery now.
        redelivered: retries handed back by this consumer.
        failed: deliveries that failed.
        dead_lettered: records whose dead letter is durable.
        ignored: settles that came too late, twice, or for a lost partition.
        lost: positions skipped because the broker no longer stored them.
        hole_alarms: times that a partition went over its hole budget.
        flushes: round trips that made acks durable.
        fetch_errors: fetches that failed and were tried again.
    """

    partitions: tuple[Partition, ...]
    paused: tuple[Partition, ...]
    over_hole_budget: tuple[Partition, ...]
    fetched: int
    suppressed: int
    settled: int
    in_flight: int
    in_flight_bytes: int
    retrying: int
    redelivered: int
    failed: int
    dead_lettered: int
    ignored: int
    lost: int
    hole_alarms: int
    flushes: int
    fetch_errors: int
