"""What really happened to each record; every rule of the runtime is checked against it."""

from __future__ import annotations

import asyncio
from bisect import bisect_left, insort
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence

from consumer_sdk import Ordering
from consumer_sdk.records import Assignment, Checkpoint, DeadLetter, Message, Partition
from consumer_sdk.testing.memory.subscription import Subscription
from tests.sim.records import (
    BrokenPromiseError,
    Grant,
    Record,
    attempts_in,
    covers,
    edges,
    number,
    read_number,
)

__all__ = ["Ledger"]


class Ledger:
    """All records and grants of a simulation.

    Args:
        now: virtual time.
        trace: called with a line for each event; None for nobody.

    Attributes:
        origin: where each partition was first started: nothing below has to be processed.
        durable: the checkpoint that a restart would find, by partition.
        committed: what the broker's group has, by partition.
        has_ack_timeouts: deliveries may count as failed although user code did not say so.
        subscription: where the broker keeps what was acked; None for a group's positions.
        has_store: what a store has is what a restart would find.
        limit: deliveries that a record may have.
        broken: set when a promise was broken; `violation` is the first one.
    """

    def __init__(self, now: Callable[[], float], trace: Callable[[str], None] | None) -> None:
        self._now = now
        self._trace = trace
        self.records: dict[tuple[Partition, int], Record] = {}
        self.durable: dict[Partition, Checkpoint] = {}
        self.committed: dict[Partition, Checkpoint] = {}
        self.origin: dict[Partition, int] = {}
        self.deliveries = 0
        self.has_ack_timeouts = False
        self.subscription: Subscription | None = None
        self.has_store = False
        self.limit: int | None = None
        self.violation: BrokenPromiseError | None = None
        self.broken = asyncio.Event()
        self._closed_epochs: set[int] = set()
        self._open: dict[Partition, list[int]] = {}
        self._lanes: dict[tuple[Partition, bytes | None], list[Record]] = {}
        self._grants: dict[Assignment, Grant] = {}

    def breaks(self, text: str) -> None:
        """Notes the first broken promise; raising here would only fail a delivery."""
        if self.violation is None:
            self.violation = BrokenPromiseError(f"at {self._now():.3f} s: {text}")
            self.broken.set()
            if self._trace:
                self._trace(f"BROKEN {text}")

    # -- records ------------------------------------------------------------------------

    def appended(self, partition: Partition, position: int, key: bytes | None) -> None:
        """A record was stored."""
        record = Record(partition, position, key)
        self.records[partition, position] = record
        insort(self._open.setdefault(partition, []), position)
        self._lanes.setdefault((partition, key), []).append(record)

    def of(self, message: Message) -> Record:
        """The record of a message."""
        return self.records[message.partition, number(message.position)]

    def processed(self, message: Message) -> None:
        """User code is done with it, and is about to say so."""
        record = self.of(message)
        record.is_processed = True
        self._close(record)

    def processed_up_to(self, message: Message) -> None:
        """A cumulative ack is about to be given: what was handed out, or waits for a retry."""
        grant, partition = self._grants[message.assignment], message.partition
        places = self._open.get(partition, [])
        for at in places[: bisect_left(places, number(message.position) + 1)]:
            record = self.records[partition, at]
            if (at in grant.handed_out or record.failures) and not record.is_given_up:
                record.is_processed = True
                self._close(record)

    def failed(self, message: Message, limit: int | None) -> None:
        """A delivery failed; at the limit, only its dead letter settles the record."""
        self.of(message).failures += 1
        known, at = self._grants[message.assignment].failures, number(message.position)
        known[at] = known.get(at, 0) + 1
        if limit is not None and message.attempt >= limit:
            self.given_up(message)

    def given_up(self, message: Message) -> None:
        """User code rejected it: only its dead letter settles it."""
        self.of(message).is_given_up = True

    def buried(self, letter: DeadLetter) -> None:
        """A dead letter is durable."""
        record = self.records[letter.partition, read_number(letter.position)]
        if self._trace:
            self._trace(f"dead letter {record} ({letter.error})")
        if not record.is_given_up and record.deliveries < letter.attempts:
            self.breaks(
                f"{record} was dead-lettered after {letter.attempts} attempts, and had only "
                f"{record.deliveries} deliveries"
            )
        record.is_buried = True
        self._close(record)

    def removed(self, partition: Partition, before: int) -> None:
        """Retention has taken the records below a position: nobody can process them now."""
        for record in self.records.values():
            if record.partition == partition and record.position < before:
                record.is_removed = True
                self._close(record)

    def begins_again(self, partition: Partition, position: int) -> None:
        """All from there on is to be processed, whatever was; and nothing below."""
        if self._trace:
            self._trace(f"{partition} is to be read from {position}")
        left = [r for r in self.records.values() if r.partition == partition and not r.is_removed]
        for record in left:
            record.reopen()
        self.origin[partition] = position
        self._open[partition] = sorted(r.position for r in left if r.position >= position)
        self.durable.pop(partition, None)
        self.committed.pop(partition, None)

    def unsettled(self, partition: Partition) -> list[int]:
        """The positions that are not settled, ascending."""
        return self._open.get(partition, [])

    def _close(self, record: Record) -> None:
        places = self._open[record.partition]
        at = bisect_left(places, record.position)
        if at < len(places) and places[at] == record.position:
            del places[at]

    # -- deliveries ---------------------------------------------------------------------

    def begin(self, process: str, messages: Sequence[Message], ordering: Ordering | None) -> object:
        """Messages are handed to user code: checks that they may be.

        Args:
            process: whose user code.
            messages: for one call.
            ordering: of `Consumer.run`; None when pulling.

        Returns:
            a token for `end`.
        """
        token = object()
        batch = {(message.partition, number(message.position)) for message in messages}
        for message in messages:
            record, grant = self.of(message), self._grants[message.assignment]
            if self._trace:
                self._trace(f"{process} gets {record} key={record.key!r} no. {message.attempt}")
            self._check_delivery(grant, record, message.attempt)
            self._check_order(grant, record, message, ordering)
            lane = _lane(message, ordering)
            if lane is not None and ordering is not None:
                self._check_lane(grant, record, lane, token, batch)
            grant.handed_out.add(record.position)
            record.grant = grant
            record.is_given_up = False
            record.deliveries += 1
            self.deliveries += 1
        return token

    def _check_delivery(self, grant: Grant, record: Record, attempt: int) -> None:
        at = record.position
        if grant.is_over:
            self.breaks(f"{record} was dispatched after its partition was revoked")
        if at in grant.settled:
            self.breaks(f"{record} came again after it was settled")
        if covers(grant.durable, at):
            self.breaks(f"{record} came again, and the restored {grant.durable} covers it")
        tried = record.deliveries if self.has_ack_timeouts else record.failures
        if attempt > tried + 1:
            self.breaks(f"{record} is attempt {attempt} after {tried} failures")
        known = grant.failures.get(at, 0)
        if attempt <= known:
            self.breaks(f"{record} is attempt {attempt}, and {known} failures of it are known")
        if self.limit is not None and attempt > self.limit:
            self.breaks(f"{record} is attempt {attempt}, and {self.limit} is the limit")

    def _check_order(
        self, grant: Grant, record: Record, message: Message, ordering: Ordering | None
    ) -> None:
        """First deliveries follow the log; a queue brings late what another consumer had."""
        lane = None if self._is_queue and ordering is None else _lane(message, ordering)
        if lane is None or message.attempt > 1 or record.position in grant.handed_out:
            return
        last = grant.first_delivered.get(lane, -1)
        if record.position < last:
            self.breaks(f"{record} came after {last} of lane {lane!r}")
        grant.first_delivered[lane] = record.position

    def _check_lane(
        self,
        grant: Grant,
        record: Record,
        lane: Hashable,
        token: object,
        batch: set[tuple[Partition, int]],
    ) -> None:
        """One call at a time, and everything before it in the lane is done."""
        if grant.busy.setdefault(lane, token) is not token:
            self.breaks(f"{record}: another record of lane {lane!r} is in flight")
        origin = self.origin.get(record.partition, 0)
        for earlier in self._earlier(record, lane):
            is_done = earlier.is_settled or earlier.is_given_up or earlier.position < origin
            # After a reconnect a queue's earlier record may be with another consumer.
            is_done = is_done or (self._is_queue and earlier.grant is not grant)
            if not is_done and (earlier.partition, earlier.position) not in batch:
                self.breaks(f"{record} came while {earlier} of lane {lane!r} is not settled")

    def _earlier(self, record: Record, lane: Hashable) -> Iterable[Record]:
        partition = record.partition
        if lane == "partition":
            places = self._open[partition]
            before = places[: bisect_left(places, record.position)]
            return [self.records[partition, at] for at in before]
        same = self._lanes[partition, record.key]
        return [other for other in same if other.position < record.position]

    def end(self, messages: Iterable[Message], token: object) -> None:
        """User code is through with what `begin` gave a token for."""
        for message in messages:
            busy = self._grants[message.assignment].busy
            for lane in [lane for lane, holder in busy.items() if holder is token]:
                del busy[lane]

    def settled(self, message: Message) -> None:
        """The consumer has taken the ack: no other delivery may follow in this assignment."""
        self._grants[message.assignment].settled.add(number(message.position))

    def settled_under(self, process: str) -> list[tuple[Assignment, int]]:
        """What a process has settled under the assignments that it still holds."""
        return [
            (assignment, position)
            for assignment, grant in self._grants.items()
            if grant.process == process and not grant.is_over
            for position in sorted(grant.settled)
        ]

    # -- grants -------------------------------------------------------------------------

    def claiming(self, process: str, assignments: Iterable[Assignment]) -> None:
        """The runtime is asked for starts: what is durable now must be respected."""
        for assignment in assignments:
            found = self.durable.get(assignment.partition)
            self._grants[assignment] = Grant(process, found, attempts_in(found))

    def pinned(self, positions: Mapping[str, str]) -> None:
        """The group begins there, whoever reads which partition first, and when."""
        for id_, text in positions.items():
            self._begins(Partition("stream", id_), read_number(text))

    def _begins(self, partition: Partition, position: int) -> None:
        if partition not in self.origin:
            self.origin[partition] = position
            places = self._open.setdefault(partition, [])
            del places[: bisect_left(places, position)]

    def granted(self, assignment: Assignment, position: int) -> None:
        """The runtime has said where to start."""
        partition = assignment.partition
        self._grants[assignment].has_started = True
        if self._trace:
            self._trace(f"grant {partition} epoch {assignment.epoch} at {position}")
        self._begins(partition, position)
        places = self._open.setdefault(partition, [])
        if places and position > places[0]:
            self.breaks(f"{partition} is started at {position}, past the unsettled {places[0]}")

    def over(self, assignments: Iterable[Assignment], why: str) -> None:
        """Nothing may be handed out under these any more."""
        for assignment in assignments:
            if self._trace:
                self._trace(f"{why} {assignment.partition} epoch {assignment.epoch}")
            if assignment in self._grants:
                self._grants[assignment].is_over = True

    def closed(self, assignments: Iterable[Assignment]) -> None:
        """No write of these epochs may succeed any more."""
        self._closed_epochs.update(assignment.epoch for assignment in assignments)

    def is_live(self, assignment: Assignment) -> bool:
        """Neither revoked nor lost."""
        return not self._grants[assignment].is_over

    # -- checkpoints --------------------------------------------------------------------

    def saved(self, partition: Partition, new: Checkpoint) -> None:
        """The store has a new checkpoint."""
        self._check_cover(partition, new, "save")
        old = self.durable.get(partition)
        if not all(covers(new, position) for position in edges(old)):
            self.breaks(f"a save of {partition} went back: {old} to {new}")
        self.durable[partition] = new
        self.restorable(partition, new)

    def restorable(self, partition: Partition, new: Checkpoint) -> None:
        """What a start that is being decided restores may be this one: with fewer attempts, if they did not fit."""
        kept = attempts_in(new)
        for assignment, grant in self._grants.items():
            if assignment.partition == partition and not grant.has_started:
                least = {at: min(n, kept.get(at, 0)) for at, n in grant.failures.items()}
                grant.failures = least

    def commits(self, partition: Partition, new: Checkpoint, epoch: int) -> None:
        """The broker has a new commit."""
        self._check_cover(partition, new, f"commit of epoch {epoch}")
        if epoch in self._closed_epochs:
            self.breaks(f"a commit of {partition} for epoch {epoch} landed after its revoke")
        old = self.committed.get(partition)
        if old is not None and (new.resume or 0) < (old.resume or 0):
            self.breaks(f"a commit of {partition} went back: {old} to {new}")
        self.committed[partition] = new

    def acked(self, partition: Partition, position: int) -> None:
        """The broker has heard of a record by itself."""
        record = self.records[partition, position]
        if self._trace:
            self._trace(f"ack {record}")
        if not record.is_settled:
            self.breaks(f"{record} was acked at the broker, and is not settled")
        if self.has_store and not covers(self.durable.get(partition), position):
            self.breaks(f"{record} was acked at the broker before the store had it")

    def _check_cover(self, partition: Partition, checkpoint: Checkpoint, where: str) -> None:
        if self._trace:
            self._trace(f"{where} {partition} {checkpoint}")
        origin = self.origin.get(partition)
        for at in self._open.get(partition, []):
            if origin is not None and at >= origin and covers(checkpoint, at):
                self.breaks(f"{where} of {partition} covers the unsettled {at}: {checkpoint}")

    def is_durable(self, partition: Partition, position: int) -> bool:
        """A restart would not deliver it."""
        if self.subscription is not None and not self.has_store:
            return self.subscription.is_settled(partition, position)
        return covers(self.durable.get(partition), position)

    @property
    def _is_queue(self) -> bool:
        return self.subscription is not None and self.subscription.kind != "failover"

    def _is_in_backlog(self, record: Record) -> bool:
        subscription = self.subscription
        return subscription is not None and not subscription.is_settled(
            record.partition, record.position
        )

    def unfinished(self) -> list[str]:
        """What keeps the simulation from being over."""
        found = []
        for record in self.records.values():
            if record.is_removed or record.position < self.origin.get(record.partition, 0):
                continue
            if not record.is_settled:
                found.append(f"{record} is not settled")
            elif not self.is_durable(record.partition, record.position):
                found.append(f"{record} is settled, and no durable checkpoint covers it")
            elif self._is_in_backlog(record):
                found.append(f"{record} is durable, and still in the broker's backlog")
        return found


def _lane(message: Message, ordering: Ordering | None) -> Hashable:
    """What has to keep its order: a key, or a partition; None for nothing."""
    if ordering is Ordering.NONE or (ordering is Ordering.KEY and not message.key):
        return None
    return message.key if ordering is Ordering.KEY else "partition"
