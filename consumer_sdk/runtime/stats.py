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
        paused: those whose fetch is paused, by back-pressure, for their holes or for their lag.
        over_hole_budget: those that have more holes, or older ones, than they may.
        over_max_lag: those that started too far behind the end, and wait for `Consumer.resume`.
        fetched: records tracked, without re-fetches.
        suppressed: records fetched again although they were settled or known; not delivered.
        settled: records settled.
        in_flight: records unsettled now, and their estimated bytes.
        retrying: records waiting for their next delivery now.
        redelivered: retries handed back by this consumer.
        failed: deliveries that failed.
        dead_lettered: records whose dead letter is durable.
        ignored: settles that came too late, twice, or for a lost partition.
        lost: positions skipped at a start: the broker no longer stored them, or they were too
            many (``lag_policy="skip"``).
        resets: starts at a position that another program had set, against the store's.
        hole_alarms: times that a partition went over its hole budget.
        flushes: round trips that made acks durable.
        truncated: checkpoints whose settled ranges were more than the store or the broker takes;
            the top ones were left out.
        fetch_errors: fetches that failed and were tried again.
    """

    partitions: tuple[Partition, ...]
    paused: tuple[Partition, ...]
    over_hole_budget: tuple[Partition, ...]
    over_max_lag: tuple[Partition, ...]
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
    resets: int
    hole_alarms: int
    flushes: int
    truncated: int
    fetch_errors: int
