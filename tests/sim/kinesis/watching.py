"""The ways out of a process, each of which tells the ledger what has gone through."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeVar

from consumer_sdk.abc import AssignmentOwner, Leases, LeaseSource
from consumer_sdk.adapters.kinesis import KinesisAdapter, Limits
from consumer_sdk.adapters.kinesis.options import KinesisOptions
from consumer_sdk.adapters.kinesis.service.service import (
    IteratorStart,
    Page,
    Service,
    ThrottledError,
)
from consumer_sdk.records import Assignment, AtPosition, Partition, Start, StartPoint
from consumer_sdk.stores import MemoryStore
from consumer_sdk.testing import Faults
from consumer_sdk.testing.kinesis import FakeKinesis, FakeService
from consumer_sdk.testing.kinesis.reading import Cursor
from consumer_sdk.trackers import decode_checkpoint
from tests.sim.fakes import WatchedOwner
from tests.sim.kinesis.ledger import STREAM, KinesisLedger
from tests.sim.kinesis.plan import KinesisPlan
from tests.sim.records import number, read_number

__all__ = ["GROUP", "StoreObserver", "StoreWatch", "WatchedAdapter", "WatchedService"]

T = TypeVar("T")

GROUP = "group"
MOST_CALLS = 5


class StoreObserver:
    """Sees what is stored, whoever has written it.

    Args:
        store: a handle without faults: none of its calls is ever suspended.
    """

    def __init__(self, store: MemoryStore, ledger: KinesisLedger) -> None:
        self._store = store
        self._ledger = ledger
        self._leases: Leases = store.leases(GROUP, STREAM)
        self._texts: dict[Partition, str | None] = {}

    async def saved(self, process: str) -> None:
        """A save took effect."""
        partitions = [Partition(STREAM, shard) for shard in self._ledger.shards]
        for partition, text in (await self._store.peek(GROUP, partitions)).items():
            if text is not None and text != self._texts.get(partition):
                self._texts[partition] = text
                self._wrote(process, partition, text)

    def _wrote(self, process: str, partition: Partition, text: str) -> None:
        checkpoint = decode_checkpoint(
            text,
            broker="kinesis",
            partition=partition,
            identity=None,
            decode_position=read_number,
        )
        self._ledger.wrote(process, partition, checkpoint)

    async def pinned(self) -> None:
        """The group's start was stored."""
        for text in (await self._store.pins(GROUP)).values():
            self._ledger.begins(json.loads(text)["time"])

    async def leased(self) -> None:
        """Leases were written."""
        self._ledger.leased((await self._leases.view()).leases)


class StoreWatch:
    """One process's way to the store: a `consumer_sdk.testing.faults.Seam`.

    Attributes:
        claiming: what a claim that comes now is of.
    """

    def __init__(
        self, process: str, faults: Faults, observer: StoreObserver, ledger: KinesisLedger
    ) -> None:
        self._process = process
        self._faults = faults
        self._observer = observer
        self._ledger = ledger
        self.claiming: Sequence[Assignment] = ()

    async def around(self, seam: str, call: Callable[[], Awaitable[T]]) -> T:
        """The faults of the seam, and a look at what its effect was."""

        async def watched() -> T:
            result = await call()
            await self._look(seam)
            return result

        return await self._faults.around(seam, watched)

    async def _look(self, seam: str) -> None:
        if seam == "claim":
            self._ledger.claimed(self._process, self.claiming)
        elif seam == "save":
            await self._observer.saved(self._process)
        elif seam == "pin":
            await self._observer.pinned()
        elif seam == "lease_write":
            await self._observer.leased()


class WatchedService(FakeService):
    """Counts calls.

    Attributes:
        refused: calls that the service refused because they were too many.
    """

    def __init__(
        self, kinesis: FakeKinesis, faults: Faults, ledger: KinesisLedger, now: Callable[[], float]
    ) -> None:
        super().__init__(kinesis, STREAM, faults)
        self._ledger = ledger
        self._now = now
        self._reads: dict[str, deque[float]] = {}
        self.refused = 0

    async def iterator(self, shard: str, start: IteratorStart) -> str:
        try:
            return await super().iterator(shard, start)
        except ThrottledError:
            self.refused += 1
            raise

    async def records(self, iterator: str, limit: int) -> Page:
        self._count(Cursor.of(iterator).shard)
        try:
            return await super().records(iterator, limit)
        except ThrottledError:
            self.refused += 1
            raise

    def _count(self, shard: str) -> None:
        reads, now = self._reads.setdefault(shard, deque(maxlen=MOST_CALLS)), self._now()
        if len(reads) == MOST_CALLS and now - reads[0] < 1:
            self._ledger.breaks(f"{shard} is read more than {MOST_CALLS} times a second")
        reads.append(now)


class WatchedAdapter(KinesisAdapter):
    """Tells the ledger about grants and revokes.

    Args:
        opened: called when it is open.
        size: its ``max_shards`` and ``weight``.

    Attributes:
        most: its ``max_shards``.
        member: its name in the group; None before it is open.
        is_open: `open` has returned.
    """

    def __init__(
        self,
        plan: KinesisPlan,
        process: str,
        service: Service,
        watch: StoreWatch,
        *,
        ledger: KinesisLedger,
        opened: Callable[[], None],
        size: tuple[int | None, int],
    ) -> None:
        self.most, weight = size
        super().__init__(
            STREAM,
            group=GROUP,
            fan_out="reader" if plan.is_pushed else None,
            lease_duration=plan.lease,
            handover_timeout=plan.handover,
            max_shards=self.most,
            weight=weight,
            discovery_interval=plan.discovery,
            poll_interval=plan.poll,
            buffer_bytes=plan.buffer,
            limits=Limits(min(plan.limits.calls, MOST_CALLS), plan.limits.bytes),
        )
        self._process = process
        self._watched = service
        self._watch = watch
        self._ledger = ledger
        ledger.held_until[process] = self.held_until
        self._when_open = opened
        self.member: str | None = None
        self.is_open = False

    def _make_service(self, options: KinesisOptions) -> Service:
        return self._watched

    async def open(self, owner: AssignmentOwner, leases: LeaseSource | None = None) -> None:
        """Puts itself between the group and the runtime."""
        assert leases is not None
        source = leases

        def named(group: str, stream: str, **times: Any) -> Leases | None:
            made = source(group, stream, **times)
            self.member = None if made is None else made.member
            return made

        watched = _Owner(owner, self._process, self._ledger, self._position, self._watch)
        await super().open(watched, named)
        self.is_open = True
        self._when_open()

    def _position(self, assignment: Assignment, start: Start) -> int:
        if isinstance(start, AtPosition):
            return number(start.position)
        if start is StartPoint.ENDED:
            return 2**256
        return self._ledger.origin.get(assignment.partition, 0)

    def drop(self, assignment: Assignment) -> None:
        """The runtime has ended this epoch itself."""
        self._ledger.over([assignment], "drop")
        self._ledger.closed([assignment])
        super().drop(assignment)

    def crash(self) -> None:
        """Nothing of it goes on."""
        if self._opened is not None:
            self._opened.abort()


class _Owner(WatchedOwner):
    """Also says what a claim is of."""

    def __init__(
        self,
        owner: AssignmentOwner,
        process: str,
        ledger: KinesisLedger,
        position: Callable[[Assignment, Start], int],
        watch: StoreWatch,
    ) -> None:
        super().__init__(owner, process, ledger, position)
        self._watch = watch

    async def assigned(self, assignments: Sequence[Assignment]) -> dict[Assignment, Start]:
        self._watch.claiming = tuple(assignments)
        return dict(await super().assigned(assignments))
