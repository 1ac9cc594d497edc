"""What is counted: of each partition, of all, and the snapshot that `Consumer.stats` returns."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass

from consumer_sdk.records import Partition

__all__ = ["ConsumerStats", "PartitionTotals", "Totals"]

REMEMBERED = 1000
"""Partitions whose totals are remembered although they are not held any more."""


@dataclass(slots=True)
class Totals:
    """What was seen: of all partitions together, or of one in all its assignments."""

    fetched: int = 0
    settled: int = 0
    suppressed: int = 0
    redelivered: int = 0
    failed: int = 0
    dead_lettered: int = 0
    ignored: int = 0
    lost: int = 0
    flushes: int = 0
    fetch_errors: int = 0
    resets: int = 0
    hole_alarms: int = 0
    truncated: int = 0
    assigned: int = 0
    revoked: int = 0
    taken: int = 0


class PartitionTotals:
    """The totals of each partition: they go on when it comes back.

    Args:
        held: the partitions that are held now: their totals are never forgotten.
    """

    def __init__(self, held: Callable[[], Collection[Partition]]) -> None:
        self._held = held
        self._most = REMEMBERED
        self.all: dict[Partition, Totals] = {}

    def of(self, partition: Partition) -> Totals:
        """The totals of a partition; new ones for its first assignment."""
        found = self.all.pop(partition, None) or Totals()
        self.all[partition] = found  # the last to be forgotten
        if len(self.all) > self._most:
            self._forget_some()
        return found

    def _forget_some(self) -> None:
        held = self._held()
        gone = [partition for partition in self.all if partition not in held]
        for partition in gone[: max(len(gone) - REMEMBERED, 0)]:
            del self.all[partition]
        self._most = len(self.all) + REMEMBERED


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerStats:
    """What a consumer has done and holds.

    Attributes:
        partitions: held now.
        paused: partitions whose fetch is paused: by back-pressure, for their holes or for their
            lag.
        over_hole_budget: partitions that are over their budget of holes.
        over_max_lag: partitions that started too far behind the end, and wait for
            `Consumer.resume`.
        fetched: records that were tracked; one that is fetched again counts once.
        suppressed: records that were fetched again although they were settled or in flight, and so
            were not delivered.
        settled: records settled.
        in_flight: records unsettled now, and their estimated bytes.
        retrying: records waiting for their next delivery now.
        redelivered: retries handed back by this consumer.
        failed: deliveries that failed.
        dead_lettered: records whose dead letter is durable.
        ignored: acks, nacks and rejects that came too late, twice, or for a lost partition.
        lost: positions that were skipped at a start, because the broker no longer stored them, or
            because they were too many (``lag_policy="skip"``). If the broker does not tell how many
            (Kinesis), a loss counts as one.
        resets: starts at a position that another program had set, in place of the store's.
        hole_alarms: times that a partition went over its hole budget.
        flushes: flushes that made acks durable.
        truncated: checkpoints that were stored without some of their settled ranges or attempts,
            because the store or the broker has no room for more. It counts flushes of a partition,
            not records.
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
