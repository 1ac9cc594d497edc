"""A store in this process's memory, for tests and simulation."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar, final

from consumer_sdk.abc import StoreItem
from consumer_sdk.errors import ConsumerSdkError, StoreError, TransientStoreError
from consumer_sdk.leases.backend import LeaseBackend
from consumer_sdk.leases.memory import MemoryLeaseBackend, StoredLeases
from consumer_sdk.leases.stores import LeasingStore, reopen
from consumer_sdk.records import Assignment, Outcome, Partition
from consumer_sdk.stores.fencing import NOBODY, Claims, Stamp, Write, judge, refused, take
from consumer_sdk.testing.faults import Seam

__all__ = ["MemoryStore"]

T = TypeVar("T")


@dataclass(slots=True)
class _Row:
    stamp: Stamp
    text: str | None = None


@dataclass(slots=True)
class _State:
    """What all handles share: the part that outlives a crash."""

    rows: dict[tuple[str, Partition], _Row] = field(default_factory=dict)
    pins: dict[tuple[str, str], str] = field(default_factory=dict)
    leases: dict[tuple[str, str], StoredLeases] = field(default_factory=dict)
    writers: Callable[[], int] = field(default_factory=lambda: itertools.count(1).__next__)


@final
class MemoryStore(LeasingStore):
    """Checkpoints in memory, fenced like those of any other store. Loses them with the process.

    Several consumers may share one: closing it releases nothing, and changes nothing for the
    others. `handle` gives another handle on the same checkpoints, as another process would
    have one. No call waits for real time.

    Args:
        faults: fails, delays and cancels calls at the seams ``"claim"``, ``"save"``,
            ``"read_back"`` (after a save whose reply was lost), ``"peek"``, ``"list"``,
            ``"delete"``, ``"pin"``, ``"pins"``, ``"unpin"``, ``"lease_read"``, ``"lease_write"`` and
            ``"lease_renew"``, before or after their effect.

    Concurrency: each effect is one step that nothing can interrupt.
    """

    def __init__(self, *, faults: Seam | None = None) -> None:
        self._faults = faults
        self._state = _State()
        self._claims = Claims()

    def __repr__(self) -> str:
        return "MemoryStore()"

    def handle(self, *, faults: Seam | None = None) -> MemoryStore:
        """Another handle on the same checkpoints, which knows nothing of this one's claims."""
        other = MemoryStore(faults=faults)
        other._state = self._state
        return other

    async def open(self) -> None:
        """Does nothing: memory is there."""

    async def claim(
        self, group: str, assignments: Sequence[Assignment]
    ) -> Mapping[Assignment, str | Outcome | None]:
        """Reads the checkpoints and takes the fence; see `CheckpointStore.claim`."""
        granted, answer = await self._around("claim", lambda: self._claim(group, assignments))
        for assignment, stamp in granted.items():
            self._claims.remember(group, assignment, stamp)
        return answer

    def _claim(
        self, group: str, assignments: Sequence[Assignment]
    ) -> tuple[dict[Assignment, Stamp], dict[Assignment, str | Outcome | None]]:
        granted: dict[Assignment, Stamp] = {}
        answer: dict[Assignment, str | Outcome | None] = {}
        for assignment in assignments:
            row = self._state.rows.get((group, assignment.partition))
            stored = row.stamp if row else None
            stamp = take(stored, assignment.fence, f"memory/{self._state.writers()}")
            if stamp is None:
                answer[assignment] = refused(stored)
                continue
            text = row.text if row else None
            self._state.rows[group, assignment.partition] = _Row(stamp, text)
            granted[assignment], answer[assignment] = stamp, text
        return granted, answer

    async def save(self, group: str, items: Sequence[StoreItem]) -> list[Outcome]:
        """Writes all of them; see `CheckpointStore.save`."""
        plan = self._claims.plan(group, items, self.max_size)
        try:
            return await self._around("save", lambda: self._save(group, plan))
        except StoreError:
            return await self._after_unknown_result(group, plan)

    def _save(self, group: str, plan: Sequence[Write | Outcome]) -> list[Outcome]:
        return [s if isinstance(s, Outcome) else self._write(group, s) for s in plan]

    def _write(self, group: str, write: Write) -> Outcome:
        row = self._state.rows.get((group, write.partition))
        verdict = judge(row.stamp if row else None, write.stamp)
        if row is None or verdict is not None:
            return verdict or refused(None)
        row.stamp, row.text = write.stamp, write.text
        return Outcome.durable()

    async def _after_unknown_result(
        self, group: str, plan: Sequence[Write | Outcome]
    ) -> list[Outcome]:
        try:
            return await self._around("read_back", lambda: self._read_back(group, plan))
        except StoreError as error:
            return [s if isinstance(s, Outcome) else Outcome.retry(error) for s in plan]

    def _read_back(self, group: str, plan: Sequence[Write | Outcome]) -> list[Outcome]:
        lost = TransientStoreError("the save was not applied")
        return [
            s
            if isinstance(s, Outcome)
            else judge(self._stamp(group, s.partition), s.stamp) or Outcome.retry(lost)
            for s in plan
        ]

    def _stamp(self, group: str, partition: Partition) -> Stamp | None:
        row = self._state.rows.get((group, partition))
        return row.stamp if row else None

    async def forget(self, assignments: Sequence[Assignment]) -> None:
        """A later save of these is FENCED."""
        self._claims.forget(assignments)

    async def peek(
        self, group: str, partitions: Sequence[Partition]
    ) -> Mapping[Partition, str | None]:
        """Reads without claiming."""
        return await self._around("peek", lambda: {p: self._text(group, p) for p in partitions})

    def _text(self, group: str, partition: Partition) -> str | None:
        row = self._state.rows.get((group, partition))
        return row.text if row else None

    async def list(self, group: str) -> Sequence[Partition]:
        """The partitions that have a checkpoint in the group, in order."""
        return await self._around("list", lambda: self._list(group))

    def _list(self, group: str) -> Sequence[Partition]:
        rows = self._state.rows.items()
        return sorted(p for (owner, p), row in rows if owner == group and row.text is not None)

    async def delete(self, group: str, partitions: Iterable[Partition]) -> None:
        """Deletes checkpoints, keeping their fences; then reopens their leases."""
        gone = list(partitions)
        await self._around("delete", lambda: self._delete(group, gone))
        await reopen(self, group, gone)

    def _delete(self, group: str, partitions: Iterable[Partition]) -> None:
        for partition in partitions:
            if row := self._state.rows.get((group, partition)):
                row.stamp, row.text = Stamp(NOBODY, row.stamp.fence, 0), None

    async def purge(self, group: str, checkpoints: Mapping[Partition, str]) -> None:
        """Removes checkpoints with their fences; see `CheckpointStore.purge`."""
        await self._around("delete", lambda: self._purge(group, checkpoints))

    def _purge(self, group: str, checkpoints: Mapping[Partition, str]) -> None:
        for partition, text in checkpoints.items():
            row = self._state.rows.get((group, partition))
            if row is not None and row.text == text:
                del self._state.rows[group, partition]

    async def pin(self, group: str, stream: str, start: str) -> str:
        """Creates the group's resolved start if absent; returns the one that is stored."""
        return await self._around(
            "pin", lambda: self._state.pins.setdefault((group, stream), start)
        )

    async def pins(self, group: str) -> Mapping[str, str]:
        """The resolved starts of the group, by stream."""
        return await self._around("pins", lambda: self._pins(group))

    def _pins(self, group: str) -> Mapping[str, str]:
        pins = self._state.pins.items()
        return {stream: start for (owner, stream), start in pins if owner == group}

    async def unpin(self, group: str, stream: str) -> bool:
        """Deletes the group's resolved start; says whether there was one."""
        return await self._around(
            "unpin", lambda: self._state.pins.pop((group, stream), None) is not None
        )

    def _lease_backend(self, group: str, stream: str) -> LeaseBackend:
        stored = self._state.leases.setdefault((group, stream), StoredLeases())
        return MemoryLeaseBackend(stored, self._around)

    def _new_member(self) -> str:
        return f"member {self._state.writers()}"

    async def leased_streams(self, group: str) -> Sequence[str]:
        """The streams of which the group has leases, in order."""
        return sorted(
            stream
            for (owner, stream), stored in self._state.leases.items()
            if owner == group and stored.text is not None
        )

    async def aclose(self) -> None:
        """Does nothing, so that others may go on."""

    async def _around(self, seam: str, effect: Callable[[], T]) -> T:
        if self._faults is None:
            return effect()

        async def call() -> T:
            return effect()

        try:
            return await self._faults.around(seam, call)
        except StoreError:
            raise
        except ConsumerSdkError as error:
            raise TransientStoreError(f"{seam}: {error}") from error
