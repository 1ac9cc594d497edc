"""What the adapter suite needs of a broker, and the runtime's part played by the suite."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, ClassVar, Literal, NamedTuple

from consumer_sdk.abc import Adapter, AssignmentOwner, LeaseSource
from consumer_sdk.records import (
    AckFlush,
    Assignment,
    Checkpoint,
    Committed,
    Headers,
    Message,
    Outcome,
    Partition,
    Position,
    Run,
    Start,
    StartPoint,
)

__all__ = ["Ability", "AdapterHarness", "Event", "Journal", "Member", "Record", "RecordingOwner"]

Ability = Literal[
    "backlog",
    "crash",
    "disconnect",
    "entry",
    "gap",
    "grow",
    "late",
    "recreate",
    "reset",
    "split",
    "truncate",
    "unreadable",
]


class Record(NamedTuple):
    """A record to append; ``timestamp`` in milliseconds, the broker's choice if None."""

    value: bytes | None
    key: bytes | None = None
    headers: Headers = ()
    timestamp: int | None = None


class AdapterHarness(ABC):
    """A broker, for the suite. Streams and groups are new for each test.

    Attributes:
        abilities: what the harness can do beyond the abstract methods; cases that need
            another ability are skipped.
        patience: seconds after which something that was waited for has failed. It must
            cover a rebalance, and the session timeout where there is ``"crash"``.
        quiet: seconds without a record after which there is taken to be none.
        hostile_positions: texts that are no positions.
        faithful: records whose every part the broker keeps apart and gives back; of a timestamp
            of None it may make what it likes.
        shares_partitions: a second member gets half of a log's partitions at once.
        members_hold_all: each member of a queue holds all its partitions, however many members there are.
        leases: where members of a group meet, if the adapter needs that.
    """

    abilities: ClassVar[frozenset[Ability]] = frozenset()
    patience: float = 30.0
    quiet: float = 0.3
    hostile_positions: Sequence[str] = ("", "x", "-", "1e5", "٣", "1 ", "0x10", "9" * 5000, "\0")

    faithful: Sequence[Record] = (
        Record(None, b"tombstone", (), 1_600_000_000_001),
        Record(b"", b"", (), 1_600_000_000_002),
        Record(b"\x00\xff", None, (("h", b"1"), ("h", b""), ("n", None)), 1_600_000_000_003),
    )
    shares_partitions: bool = True
    members_hold_all: bool = True
    leases: LeaseSource | None = None

    def partition_id(self, number: int) -> str:
        """The id of a new stream's partition, counted from 0."""
        return str(number)

    def number_of(self, partition: Partition) -> int:
        """Undoes `partition_id`."""
        return int(partition.id)

    @abstractmethod
    async def create_stream(self, partitions: int = 1) -> str:
        """Makes an empty stream and returns its new name."""

    @abstractmethod
    def make_adapter(self, stream: str, group: str, **options: Any) -> Adapter:
        """An adapter that is not open yet."""

    @abstractmethod
    async def append(
        self, stream: str, records: Sequence[Record], partition: int = 0
    ) -> list[Position]:
        """Appends records in order; returns where they are."""

    async def append_apart(self, stream: str, records: Sequence[Record]) -> float:
        """Appends records; returns a time between those of the first half and of the second."""
        stamped = [each._replace(timestamp=1_600_000_000_000 + n) for n, each in enumerate(records)]
        await self.append(stream, stamped)
        return 1_600_000_000 + len(records) // 2 / 1000

    def past_end(self, latest: Position | None) -> Position:
        """A position that the stream has not reached.

        Args:
            latest: its next one; None from a broker that knows no ends.
        """
        assert latest is not None
        return latest + 1000

    async def crash(self, adapter: Adapter) -> None:
        """Ability ``"crash"``: ends the adapter as kill -9 would; it is closed later all the same."""
        raise NotImplementedError

    async def disconnect(self, adapter: Adapter) -> None:
        """Ability ``"disconnect"``: breaks its connection to the broker, which comes back."""
        raise NotImplementedError

    async def backlog(self, stream: str, group: str) -> int:
        """Ability ``"backlog"``: how many records the broker has no ack of."""
        raise NotImplementedError

    async def append_entry(self, stream: str, records: Sequence[Record]) -> None:
        """Ability ``"entry"``: stores all records in one entry, as a producer's batch."""
        raise NotImplementedError

    async def append_late(self, stream: str, records: Sequence[Record]) -> None:
        """Ability ``"late"``: stores records that consumers do not get before `release`."""
        raise NotImplementedError

    async def release(self, stream: str) -> None:
        """Ability ``"late"``: what was stored by `append_late` comes after the next reconnect."""
        raise NotImplementedError

    async def append_unreadable(self, stream: str) -> None:
        """Ability ``"unreadable"``: stores one record that can never be read."""
        raise NotImplementedError

    async def skip(self, stream: str, partition: int = 0) -> None:
        """Ability ``"gap"``: moves the end of a partition without a record."""
        raise NotImplementedError

    async def truncate(self, stream: str, before: Position, partition: int = 0) -> None:
        """Ability ``"truncate"``: drops the records below a position."""
        raise NotImplementedError

    async def grow(self, stream: str, total: int) -> None:
        """Ability ``"grow"``: gives the stream ``total`` partitions."""
        raise NotImplementedError

    async def split(self, stream: str) -> None:
        """Ability ``"split"``: ends the only partition, which gets two children.

        From then on `append` chooses between them by key.
        """
        raise NotImplementedError

    async def reset(self, stream: str, group: str, position: Position, partition: int = 0) -> None:
        """Ability ``"reset"``: sets the group's position as an operator's tool does."""
        raise NotImplementedError

    async def recreate(self, stream: str) -> None:
        """Ability ``"recreate"``: deletes the stream and makes one of the same name."""
        raise NotImplementedError


class Event(NamedTuple):
    """Something that an adapter told its owner."""

    kind: Literal["assigned", "cancelled", "granted", "revoked", "released", "lost"]
    member: str
    assignments: tuple[Assignment, ...]


class Journal:
    """What all members of a test were told, in order; can be waited for."""

    def __init__(self, patience: float) -> None:
        self.events: list[Event] = []
        self.patience = patience
        self._changed = asyncio.Event()

    def write(self, kind: Any, member: str, assignments: Sequence[Assignment]) -> None:
        """Adds an event."""
        self.events.append(Event(kind, member, tuple(assignments)))
        self.notify()

    def notify(self) -> None:
        """Has everybody who waits look again."""
        self._changed.set()

    async def until(self, condition: Callable[[], bool], what: str) -> None:
        """Waits for a condition on the journal.

        Raises:
            AssertionError: it does not come true within ``patience`` seconds.
        """
        try:
            async with asyncio.timeout(self.patience):
                while not condition():
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError:
            raise AssertionError(f"waited for: {what}; happened: {self.events}") from None

    def of(self, kind: str, member: str | None = None) -> list[Event]:
        """The events of one kind, of one member or all."""
        return [e for e in self.events if e.kind == kind and member in {None, e.member}]


class RecordingOwner(AssignmentOwner):
    """Plays the runtime's part and writes everything down.

    Attributes:
        start: where granted assignments start: a start, or a function of the assignment.
        gate: `assigned` does not return before it is set.
        failures: exceptions that the next calls of `assigned` raise.
        left_out: ids of partitions that are missing from the answer.
        on_revoked: awaited inside `revoked`.
    """

    def __init__(self, name: str, journal: Journal, start: Start = StartPoint.EARLIEST) -> None:
        self.name = name
        self.journal = journal
        self.start: Start | Callable[[Assignment], Start] = start
        self.gate = asyncio.Event()
        self.gate.set()
        self.failures: list[Exception] = []
        self.left_out: frozenset[str] = frozenset()
        self.on_revoked: Callable[[Sequence[Assignment]], Any] | None = None
        self.held: dict[Assignment, None] = {}
        self.adapter: Adapter | None = None
        self.committed: dict[Assignment, Committed | None] = {}

    async def assigned(self, assignments: Sequence[Assignment]) -> Mapping[Assignment, Start]:
        """Waits for the gate, fails if told so, reads what is committed, and grants."""
        self.journal.write("assigned", self.name, assignments)
        try:
            await self.gate.wait()
        except asyncio.CancelledError:
            self.journal.write("cancelled", self.name, assignments)
            raise
        if self.failures:
            raise self.failures.pop(0)
        assert self.adapter is not None
        self.committed.update(await self.adapter.committed(assignments))
        granted = [a for a in assignments if a.partition.id not in self.left_out]
        self.held.update(dict.fromkeys(granted))
        self.journal.write("granted", self.name, granted)
        return {a: self.start(a) if callable(self.start) else self.start for a in granted}

    async def revoked(self, assignments: Sequence[Assignment], *, deadline: float) -> None:
        """Notes it on entering and on leaving."""
        assert deadline >= asyncio.get_running_loop().time()
        self.journal.write("revoked", self.name, assignments)
        if self.on_revoked is not None:
            await self.on_revoked(assignments)
        self._forget(assignments)
        self.journal.write("released", self.name, assignments)

    def lost(self, assignments: Sequence[Assignment]) -> None:
        """Notes it."""
        self._forget(assignments)
        self.journal.write("lost", self.name, assignments)

    def _forget(self, assignments: Sequence[Assignment]) -> None:
        for assignment in assignments:
            self.held.pop(assignment, None)


class Member:
    """An open adapter with its owner, and what was read through it."""

    def __init__(self, adapter: Adapter, owner: RecordingOwner, harness: AdapterHarness) -> None:
        self.adapter = adapter
        self.owner = owner
        self.runs: list[Run] = []
        self._harness = harness
        self._flushes = 0

    async def holding(self, count: int) -> list[Assignment]:
        """Waits until it holds ``count`` assignments; they are ordered by partition."""
        held = self.owner.held
        await self.owner.journal.until(
            lambda: len(held) == count, f"{self.owner.name} to hold {count} partitions"
        )
        return sorted(held, key=lambda assignment: assignment.partition)

    async def fetch(self, *, max_records: int = 500, max_wait: float | None = None) -> list[Run]:
        """One fetch; runs of epochs that are over are thrown away, as the runtime does."""
        wait = self._harness.quiet if max_wait is None else max_wait
        runs = await self.adapter.fetch(max_records=max_records, max_bytes=1 << 20, max_wait=wait)
        mine = [run for run in runs if run.assignment in self.owner.held]
        self.runs += mine
        return mine

    async def read(self, count: int) -> list[Message]:
        """Fetches until ``count`` messages have come."""
        found: list[Message] = []
        async with asyncio.timeout(self._harness.patience):
            while len(found) < count:
                found += [message for run in await self.fetch() for message in run.messages]
        assert len(found) == count
        return found

    async def read_some(self) -> list[Message]:
        """Fetches until some messages have come."""
        async with asyncio.timeout(self._harness.patience):
            while not (runs := [run for run in await self.fetch() if run.messages]):
                pass
        return [message for run in runs for message in run.messages]

    async def read_fault(self) -> Run:
        """Fetches until a run with a fault has come."""
        async with asyncio.timeout(self._harness.patience):
            while True:
                for run in await self.fetch():
                    if run.fault is not None:
                        return run

    async def read_nothing(self) -> None:
        """Fetches once and finds no record."""
        assert not [message for run in await self.fetch() for message in run.messages]

    async def ack(self, messages: Sequence[Message]) -> Outcome:
        """Commits a flush that names these records of one assignment."""
        self._flushes += 1
        settled = [(message.position, message.native) for message in messages]
        flush = AckFlush(messages[0].assignment, self._flushes, Checkpoint(), settled)
        (outcome,) = await self.adapter.commit([flush])
        return outcome

    async def commit(self, assignment: Assignment, resume: Position, number: int = 0) -> Outcome:
        """Commits a position; ``number`` is the flush's, the next one if 0."""
        self._flushes = number or self._flushes + 1
        flush = AckFlush(assignment, self._flushes, Checkpoint(resume=resume))
        (outcome,) = await self.adapter.commit([flush])
        return outcome


@asynccontextmanager
async def open_member(
    harness: AdapterHarness, owner: RecordingOwner, adapter: Adapter
) -> AsyncIterator[Member]:
    """Opens an adapter, runs its background duties, and closes it."""
    owner.adapter = adapter
    member = Member(adapter, owner, harness)
    try:
        await adapter.open(owner, harness.leases)
        async with asyncio.TaskGroup() as group:
            duties = group.create_task(adapter.run())
            yield member
            await adapter.aclose()
            duties.cancel()
    finally:
        await adapter.aclose()
