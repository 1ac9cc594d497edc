"""What really happened, and the rules of shards that come of other shards."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence

from consumer_sdk import Ordering
from consumer_sdk.records import Assignment, Checkpoint, Message, Partition
from consumer_sdk.records.leases import Lease
from consumer_sdk.testing.kinesis import FakeShard
from tests.sim.ledger import Ledger
from tests.sim.records import Grant, Record, covers

__all__ = ["STREAM", "KinesisLedger"]

STREAM = "stream"


class KinesisLedger(Ledger):
    """A ledger that knows families of shards, fences and leases.

    A position is its number here: the sum of sequence and sub-sequence number, which is ordered
    as the two are, for sequence numbers lie farther apart than any sub-sequence number is high.

    Attributes:
        since: the group has to process what has arrived since then; None: not known yet.
        shards: all that were ever made.
        held_until: what each process knows of its leases.
    """

    def __init__(self, now: Callable[[], float], trace: Callable[[str], None] | None) -> None:
        super().__init__(now, trace)
        self.since: float | None = None
        self.shards: dict[str, FakeShard] = {}
        self._times: dict[tuple[Partition, int], float] = {}
        self._undurable: dict[str, set[int]] = {}
        self._claimants: dict[Partition, tuple[int, str]] = {}
        self._leases: Mapping[str, Lease] = {}
        self.held_until: dict[str, Callable[[], float]] = {}
        self._known: dict[str, float] = {}

    # -- the stream -----------------------------------------------------------------------

    def knows(self, shard: FakeShard) -> None:
        """A shard was made."""
        self.shards[shard.id] = shard
        self._undurable[shard.id] = set()
        if self.since is not None:
            self._begins(Partition(STREAM, shard.id), 0)

    def stored(self, shard: FakeShard, position: int, key: bytes, time: float) -> None:
        """A record, or a user record of an aggregate, was stored."""
        partition = Partition(STREAM, shard.id)
        self.appended(partition, position, key)
        self._times[partition, position] = time
        self._undurable[shard.id].add(position)

    def begins(self, since: float) -> None:
        """The group's start is known for good."""
        if self.since is not None:
            return
        self.since = since
        for shard in self.shards:
            self._begins_at(Partition(STREAM, shard), since)

    def _begins_at(self, partition: Partition, since: float) -> None:
        early = [at for (p, at), time in self._times.items() if p == partition and time < since]
        self._begins(partition, max(early, default=-1) + 1)
        self._undurable[partition.id].difference_update(early)

    def trimmed(self, before: float) -> None:
        """Retention has taken what arrived earlier."""
        for (partition, at), time in self._times.items():
            record = self.records[partition, at]
            if time < before and not record.is_removed:
                record.is_removed = True
                self._close(record)
                self._undurable[partition.id].discard(at)

    def first_undurable(self) -> float | None:
        """When the oldest record arrived that is not durably settled; None: all are.

        A closed shard of which nothing was read counts too: nobody could tell that it was empty.
        """
        times = [
            self._times[Partition(STREAM, shard), at]
            for shard, places in self._undurable.items()
            for at in places
        ]
        times += [
            s.closed for s in self.shards.values() if s.closed is not None and self._is_new(s)
        ]
        return min(times, default=None)

    def _is_new(self, shard: FakeShard) -> bool:
        is_read = self.durable.get(Partition(STREAM, shard.id)) is not None
        return not is_read and not self._leases.get(shard.id, Lease()).ended

    # -- deliveries -----------------------------------------------------------------------

    def begin(self, process: str, messages: Sequence[Message], ordering: Ordering | None) -> object:
        # Who pulls may have one more, before the loop has turned.
        if ordering is not None:
            self._check_woken(process)
        return super().begin(process, messages, ordering)

    def woken(self, process: str) -> None:
        """It was stopped for long, and goes on."""
        held_until, now = self.held_until[process](), self._now()
        self._known[process] = held_until if now < held_until < math.inf else now

    def _check_woken(self, process: str) -> None:
        """What it knew when it went on may have run out meanwhile: it was not answered since."""
        held_until = self.held_until[process]()
        if held_until <= self._known.get(process, -math.inf) and held_until <= self._now():
            self.breaks(f"{process} was woken, and works before it has renewed its leases")

    def _check_delivery(self, grant: Grant, record: Record, attempt: int) -> None:
        super()._check_delivery(grant, record, attempt)
        if record.position < self.origin.get(record.partition, 0):
            self.breaks(f"{record} came, and the group begins after it")
        if not record.deliveries:
            self._check_parents(record)

    def _check_parents(self, record: Record) -> None:
        for shard in self._ancestors(record.partition.id):
            if self._undurable[shard]:
                left = sorted(self._undurable[shard])
                self.breaks(f"{record} came before {shard} was settled: {left[:3]} are left")

    def _ancestors(self, shard: str) -> Iterable[str]:
        for parent in self.shards[shard].parents:
            yield parent
            yield from self._ancestors(parent)

    # -- checkpoints ------------------------------------------------------------------------

    def claimed(self, process: str, assignments: Sequence[Assignment]) -> None:
        """A claim took effect: from here on nobody with a lower fence writes."""
        for assignment in assignments:
            partition, fence = assignment.partition, assignment.fence or 0
            if fence >= self._claimants.get(partition, (0, ""))[0]:
                self._claimants[partition] = fence, process
            if assignment in self._grants:
                self._grants[assignment].durable = self.durable.get(partition)

    def wrote(self, process: str, partition: Partition, new: Checkpoint) -> None:
        """A process has changed what is stored."""
        owner = self._claimants.get(partition, (0, "nobody"))[1]
        if owner != process:
            self.breaks(f"{process} wrote {partition}, which {owner} has claimed")
        self.saved(partition, new)
        places = self._undurable[partition.id]
        places.difference_update([at for at in places if covers(new, at)])

    # -- leases -----------------------------------------------------------------------------

    def leased(self, leases: Mapping[str, Lease]) -> None:
        """The leases were changed."""
        for shard, lease in leases.items():
            before = self._leases.get(shard, Lease())
            if lease.fence < before.fence:
                self.breaks(f"the fence of {shard} went back: {before} to {lease}")
            if before.ended and not lease.ended:
                self.breaks(f"{shard} had ended, and is to be read again")
            if lease.ended and not before.ended:
                self._check_end(shard)
        self._leases = leases

    def _check_end(self, shard: str) -> None:
        if self.shards[shard].closed is None:
            self.breaks(f"{shard} was ended, and is open")
        if self._undurable[shard]:
            left = sorted(self._undurable[shard])
            self.breaks(f"{shard} was ended, and of it are not settled: {left[:3]}")

    def owned_by(self, member: str) -> list[str]:
        """The shards whose lease the member has."""
        return [shard for shard, lease in self._leases.items() if lease.owner == member]

    def owners(self) -> set[str]:
        """All members that have a lease."""
        return {lease.owner for lease in self._leases.values() if lease.owner is not None}

    def unfinished(self) -> list[str]:
        closed = [shard.id for shard in self.shards.values() if shard.closed is not None]
        left = [s for s in closed if s in self._leases and not self._leases[s].ended]
        return super().unfinished() + [f"the lease of {shard} has not ended" for shard in left]
