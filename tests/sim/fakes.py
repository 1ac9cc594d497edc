"""Store and dead letters in memory, and an adapter that tells the ledger what it is told."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from consumer_sdk.abc import AssignmentOwner, CheckpointStore, DeadLetters, LeaseSource, StoreItem
from consumer_sdk.errors import FencedError, TransientAdapterError, TransientStoreError
from consumer_sdk.records import (
    Assignment,
    AtPosition,
    DeadLetter,
    Outcome,
    OutcomeKind,
    Partition,
    Start,
    StartPoint,
)
from consumer_sdk.testing import Faults
from consumer_sdk.testing.memory import MemoryAdapter
from consumer_sdk.trackers import decode_checkpoint
from tests.sim.ledger import Ledger
from tests.sim.records import number, read_number

StoreFault = TransientStoreError("injected fault of the store")


@dataclass(slots=True)
class Row:
    """What the store keeps for a partition: its text, and who may write it."""

    text: str | None = None
    fence: int = -1
    writer: Assignment | None = None


@dataclass(slots=True)
class SharedState:
    """What outlives a process."""

    ledger: Ledger
    rows: dict[Partition, Row] = field(default_factory=dict)
    pins: dict[str, str] = field(default_factory=dict)


class SimStore(CheckpointStore):
    """One process's client of the store: fenced as the contract says."""

    def __init__(self, shared: SharedState, faults: Faults) -> None:
        self._shared = shared
        self._faults = faults
        self._claims: set[Assignment] = set()

    async def open(self) -> None:
        """Nothing to connect to."""

    async def claim(
        self, group: str, assignments: Sequence[Assignment]
    ) -> Mapping[Assignment, str | Outcome | None]:
        """Takes the fence, unless a newer one is stored."""

        async def apply() -> Mapping[Assignment, str | Outcome | None]:
            return {assignment: self._claim(assignment) for assignment in assignments}

        answers = await self._faults.around("claim", apply, lambda _: StoreFault)
        self._claims.update(a for a, found in answers.items() if not isinstance(found, Outcome))
        return answers

    def _claim(self, assignment: Assignment) -> str | Outcome | None:
        row = self._shared.rows.setdefault(assignment.partition, Row())
        fence = row.fence if assignment.fence is None else assignment.fence
        if fence < row.fence:
            return Outcome(OutcomeKind.FENCED, error=FencedError("a newer owner has claimed"))
        row.fence, row.writer = fence, assignment
        return row.text

    async def save(self, group: str, items: Sequence[StoreItem]) -> list[Outcome]:
        """Writes what is not stale; a fault is RETRY, with or without effect."""

        async def apply() -> list[Outcome]:
            return [self._save(item) for item in items]

        try:
            return await self._faults.around("save", apply, lambda _: StoreFault)
        except TransientStoreError as error:
            return [Outcome.retry(error) for _ in items]

    def _save(self, item: StoreItem) -> Outcome:
        side = self._faults.should_fail("save.partition")
        if side == "before":
            return Outcome.retry(StoreFault)
        partition = item.assignment.partition
        row = self._shared.rows.setdefault(partition, Row())
        if row.writer is not item.assignment:
            return Outcome(OutcomeKind.FENCED, error=FencedError("another owner has claimed"))
        row.text = item.text
        checkpoint = decode_checkpoint(
            item.text,
            broker="memory",
            partition=partition,
            identity=None,
            decode_position=read_number,
        )
        self._shared.ledger.saved(partition, checkpoint)
        return Outcome.retry(StoreFault) if side else Outcome.durable()

    async def forget(self, assignments: Sequence[Assignment]) -> None:
        """Drops the claims."""
        self._claims.difference_update(assignments)
        for assignment in assignments:
            row = self._shared.rows.get(assignment.partition)
            if row is not None and row.writer is assignment:
                row.writer = None

    async def peek(
        self, group: str, partitions: Sequence[Partition]
    ) -> Mapping[Partition, str | None]:
        """Reads."""
        return {p: self._shared.rows.get(p, Row()).text for p in partitions}

    async def list(self, group: str) -> Sequence[Partition]:
        """All partitions."""
        return list(self._shared.rows)

    async def delete(self, group: str, partitions: Iterable[Partition]) -> None:
        """Deletes the texts."""
        for partition in partitions:
            self._shared.rows[partition].text = None

    async def pin(self, group: str, stream: str, start: str) -> str:
        """The first one wins."""
        if stream not in self._shared.pins:
            self._shared.pins[stream] = start
            self._shared.ledger.pinned(json.loads(start)["positions"])
        return self._shared.pins[stream]

    async def pins(self, group: str) -> Mapping[str, str]:
        """The starts, by stream."""
        return dict(self._shared.pins)

    async def unpin(self, group: str, stream: str) -> bool:
        """The next one wins."""
        return self._shared.pins.pop(stream, None) is not None

    async def aclose(self) -> None:
        """A consumer that ends keeps no claim: nothing it had in the air can be written any more."""
        if self._claims and not self._faults.is_dead:
            names = sorted(f"{each.partition} epoch {each.epoch}" for each in self._claims)
            self._shared.ledger.breaks(f"closed, and these claims were not forgotten: {names}")


class SimDeadLetters(DeadLetters):
    """Tells the ledger what is durable."""

    def __init__(self, ledger: Ledger, faults: Faults) -> None:
        self._ledger = ledger
        self._faults = faults

    async def open(self) -> None:
        """Nothing to connect to."""

    async def send(self, letters: Sequence[DeadLetter]) -> list[Outcome]:
        """Each letter is written, or not, by itself."""

        async def apply() -> list[Outcome]:
            return [self._send(letter) for letter in letters]

        try:
            return await self._faults.around("dead_letters", apply)
        except TransientAdapterError as error:
            return [Outcome.retry(error) for _ in letters]

    def _send(self, letter: DeadLetter) -> Outcome:
        side = self._faults.should_fail("dead_letter")
        if side != "before":
            self._ledger.buried(letter)
        return Outcome.retry(StoreFault) if side else Outcome.durable()

    async def aclose(self) -> None:
        """Nothing to close."""


class WatchedAdapter(MemoryAdapter):
    """Tells the ledger about grants and revokes."""

    def __init__(self, *args: Any, process: str, ledger: Ledger, **options: Any) -> None:
        super().__init__(*args, **options)
        self.process = process
        self.ledger = ledger

    async def open(self, owner: AssignmentOwner, leases: LeaseSource | None = None) -> None:
        """Puts itself between the group and the runtime."""
        watched = WatchedOwner(owner, self.process, self.ledger, self._position)
        await super().open(watched, leases)

    def _position(self, assignment: Assignment, start: Start) -> int:
        log = self.memory.log(assignment.partition)
        assert log is not None
        if isinstance(start, AtPosition):
            return number(start.position)
        if start is StartPoint.BROKER and self.ledger.subscription is not None:
            return self.ledger.subscription.cursor(assignment.partition, log).lowest
        return log.end if start is StartPoint.LATEST else log.start

    def drop(self, assignment: Assignment) -> None:
        """The runtime has ended this epoch itself."""
        self.ledger.over([assignment], "drop")
        self.ledger.closed([assignment])
        super().drop(assignment)


class WatchedOwner(AssignmentOwner):
    """Tells the ledger what the runtime is asked, and answers.

    Args:
        process: whose runtime.
        position: the number at which a start begins.
    """

    def __init__(
        self,
        owner: AssignmentOwner,
        process: str,
        ledger: Ledger,
        position: Callable[[Assignment, Start], int],
    ) -> None:
        self._owner = owner
        self._process = process
        self._ledger = ledger
        self._position = position

    async def assigned(self, assignments: Sequence[Assignment]) -> Mapping[Assignment, Start]:
        self._ledger.claiming(self._process, assignments)
        starts = await self._owner.assigned(assignments)
        for assignment, start in starts.items():
            self._ledger.granted(assignment, self._position(assignment, start))
        return starts

    async def revoked(self, assignments: Sequence[Assignment], *, deadline: float) -> None:
        self._ledger.over(assignments, "revoke")
        await self._owner.revoked(assignments, deadline=deadline)
        self._ledger.closed(assignments)

    def lost(self, assignments: Sequence[Assignment]) -> None:
        self._ledger.over(assignments, "lose")
        self._owner.lost(assignments)
        self._ledger.closed(assignments)
