"""What must hold whatever happens to the members of a group; told of every step of a simulation."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from itertools import pairwise

from consumer_sdk.leases.table import LeaseTable
from consumer_sdk.records import Partition
from consumer_sdk.stores import MemoryStore

__all__ = ["STREAM", "Ledger", "Tenure"]

GROUP, STREAM = "g", "s"


@dataclass(slots=True, eq=False)
class Tenure:
    """One member's time with one partition.

    Attributes:
        fence: under which it took the partition.
        position: the next record that it processes.
        is_open: it still works on it.
        is_handed_over: it flushed everything and released it.
        is_late: it may go on after others took the partition: stopped, or stubborn.
    """

    partition: str
    fence: int
    position: int = 0
    is_open: bool = True
    is_handed_over: bool = False
    is_late: bool = False


@dataclass(slots=True)
class Ledger:
    """All that happened.

    Attributes:
        parents: of each partition.
        sizes: how many records a partition has.
        is_strict: clocks tick alike, so that owners give up before others take, but
            where an operator has taken it from them.
        tenures: of each partition, in the order in which they began.
        evicted: fences of leases that an operator has taken from their owners.
        counts: of what happened: records ``"repeated"``, partitions ``"handed over"``, ``"lost"``,
            ``"evicted"`` by an operator, and ``"refused"`` by the store.
    """

    parents: dict[str, tuple[str, ...]]
    sizes: dict[str, int]
    is_strict: bool
    tenures: dict[str, list[Tenure]] = field(default_factory=dict)
    processed: dict[str, set[int]] = field(default_factory=dict)
    evicted: set[int] = field(default_factory=set)
    counts: Counter[str] = field(default_factory=Counter)
    _stored: dict[str, tuple[int, int]] = field(default_factory=dict)
    _fences: dict[str, int] = field(default_factory=dict)

    def begin(self, tenure: Tenure) -> None:
        """A member has claimed a partition and knows where to start."""
        before = self.tenures.setdefault(tenure.partition, [])
        for parent in self.parents[tenure.partition]:
            assert len(self.processed[parent]) == self.sizes[parent], f"{parent} is not read yet"
        for earlier in before:
            if earlier.is_handed_over and earlier.fence < tenure.fence:
                assert tenure.position >= earlier.position, f"{tenure} repeats {earlier}"
            if self.is_strict and not self.evicted & {earlier.fence, tenure.fence}:
                assert earlier.is_late or not earlier.is_open, f"{tenure} overlaps {earlier}"
        before.append(tenure)

    def process(self, tenure: Tenure) -> None:
        """A member processes the next record."""
        done = self.processed.setdefault(tenure.partition, set())
        assert tenure.position in done or tenure.position == len(done), f"{tenure} skips"
        self.counts["repeated"] += tenure.position in done
        done.add(tenure.position)
        tenure.position += 1

    def audit(self, store: MemoryStore) -> None:
        """What is stored never goes back, and nobody of before can write."""
        for (_, partition), row in store._state.rows.items():
            now = (row.stamp.fence or 0, int(row.text or 0))
            before = self._stored.get(partition.id, (0, 0))
            assert now[0] >= before[0], f"{partition}: an older owner has claimed"
            assert now[1] >= before[1], f"{partition}: from {before} back to {now}"
            self._stored[partition.id] = now
        stored = store._state.leases.get((GROUP, STREAM))
        if stored is not None and stored.text is not None:
            self._audit_leases(LeaseTable.decode(stored.text, "here"))

    def _audit_leases(self, table: LeaseTable) -> None:
        fences = {p: lease.fence for p, lease in table.leases.items()}
        assert all(fence >= self._fences.get(p, 0) for p, fence in fences.items()), (
            "fence went back"
        )
        for partition, lease in table.leases.items():
            if lease.fence:
                assert all(table.leases[p].ended for p in lease.parents if p in table.leases), (
                    f"{partition} was taken before its parents ended"
                )
        taken = sorted(f for p, f in fences.items() if f)
        assert all(a != b for a, b in pairwise(taken)), "one fence for two partitions"
        self._fences.update(fences)

    def is_done(self, store: MemoryStore) -> bool:
        """Every record was processed, and that is durable."""
        return all(self._is_done(store, p, size) for p, size in self.sizes.items())

    def _is_done(self, store: MemoryStore, partition: str, size: int) -> bool:
        row = store._state.rows.get((GROUP, Partition(STREAM, partition)))
        return row is not None and int(row.text or 0) == size == len(self.processed[partition])
