"""A stream, a store and members of a group on virtual time, for tests of the adapter's parts."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeVar

from consumer_sdk import Consumer
from consumer_sdk.abc import CheckpointStore
from consumer_sdk.adapters.assignment_book import GrantState
from consumer_sdk.adapters.kinesis.consumer.grants import Grant
from consumer_sdk.adapters.kinesis.service.service import Page
from consumer_sdk.errors import TransientStoreError
from consumer_sdk.records import Assignment, Message, Partition, Run, Start
from consumer_sdk.stores import MemoryStore
from consumer_sdk.testing import Simulation, simulate
from consumer_sdk.testing.conformance.adapters.harness import Journal, RecordingOwner
from consumer_sdk.testing.faults import Faults
from consumer_sdk.testing.kinesis import FakeKinesis, FakeService, Quirks, ShardLimits
from tests.adapters.kinesis.harness import FakeAdapter, shard_id
from tests.adapters.kinesis.service.test_aggregation import aggregate

__all__ = [
    "SHARD",
    "Actor",
    "Stage",
    "aggregated",
    "assignment",
    "begin",
    "page",
    "play",
    "text_of",
    "values_of",
]

T = TypeVar("T")

SHARD = shard_id(0)

PATIENCE = 1000.0
"""Virtual seconds."""

TIMES: dict[str, float] = {
    "lease_duration": 10.0,
    "handover_timeout": 30.0,
    "discovery_interval": 60.0,
    "poll_interval": 1.0,
}


def assignment(shard: str = SHARD, epoch: int = 1) -> Assignment:
    """One of the stream ``s``."""
    return Assignment(Partition("s", shard), epoch, epoch)


def begin(grant: Grant, start: Start) -> None:
    """The owner has had it read from there on."""
    grant.state = GrantState.OPEN
    grant.begin(start)


def page(*records: tuple[int, bytes], after: str | None = "more", behind: int | None = 0) -> Page:
    """A page of (sequence number, data)."""
    return Page(
        sequences=[sequence for sequence, _ in records],
        keys=[b"k" for _ in records],
        data=[data for _, data in records],
        times=[sequence for sequence, _ in records],
        next=after,
        behind=behind,
        size=sum(len(data) + 1 for _, data in records),
    )


def text_of(message: Message) -> str:
    """A message's value as text."""
    return (message.value or b"").decode()


def values_of(runs: Sequence[Run]) -> list[str]:
    """The values of all runs, in order."""
    return [text_of(message) for run in runs for message in run.messages]


def aggregated(*users: tuple[bytes, bytes]) -> bytes:
    """An aggregate of user records, (partition key, data) each."""
    keys = [key for key, _ in users] or [b"unused"]
    return aggregate(keys, [], [(at, None, data) for at, (_, data) in enumerate(users)])


class Actor:
    """One member: an open adapter, what its owner was told, and what it has read.

    Attributes:
        faults: of its way to the service.
        store_faults: of its way to the store.
    """

    def __init__(self, stage: Stage, name: str, group: str | None, options: Any) -> None:
        self.faults = Faults()
        self.store_faults = Faults(error=stage.store_error)
        self.store = stage.store.handle(faults=self.store_faults)
        self.journal = stage.journal
        self.owner = RecordingOwner(name, stage.journal)
        self.adapter = FakeAdapter(
            "s",
            group=group,
            make_service=lambda: FakeService(stage.kinesis, "s", self.faults),
            **TIMES | options,
        )
        self.owner.adapter = self.adapter
        self.runs: list[Run] = []

    async def open(self) -> Actor:
        """Opens the adapter."""
        await self.adapter.open(self.owner, self.store.leases)
        return self

    @property
    def held(self) -> list[str]:
        """The ids of the shards that its owner holds."""
        return sorted(each.partition.id for each in self.owner.held)

    def assignment(self, shard: str = SHARD) -> Assignment:
        """What its owner holds of a shard."""
        (found,) = (each for each in self.owner.held if each.partition.id == shard)
        return found

    async def holding(self, *shards: str) -> None:
        """Waits until it holds exactly these."""
        await self.journal.until(lambda: self.held == sorted(shards), f"holding {shards}")

    async def fetch(self, wait: float = 1.0, **limits: int) -> list[Run]:
        """One fetch."""
        limits = {"max_records": 10_000, "max_bytes": 1 << 30} | limits
        runs = await self.adapter.fetch(**limits, max_wait=wait)
        self.runs += runs
        return runs

    async def read(self, seconds: float, **limits: int) -> list[str]:
        """The values that come within so many seconds."""
        loop = asyncio.get_running_loop()
        until, found = loop.time() + seconds, []
        while (left := until - loop.time()) > 0:
            found += values_of(await self.fetch(left, **limits))
        return found

    @property
    def ends(self) -> list[str]:
        """The shards whose end was fetched."""
        return [run.assignment.partition.id for run in self.runs if run.ended]


class Stage:
    """A stream ``s`` on the fake, a store in memory, and members.

    Args:
        shards: of the stream.
    """

    def __init__(
        self,
        simulation: Simulation,
        shards: int,
        *,
        limits: ShardLimits | None,
        quirks: Quirks | None,
        retention: float,
    ) -> None:
        self.simulation = simulation
        self.kinesis = FakeKinesis(
            simulation.clock, limits=limits, quirks=quirks, retention=retention
        )
        self.kinesis.create_stream("s", shards)
        self.store = MemoryStore()
        self.journal = Journal(PATIENCE)
        self._actors: list[Actor] = []

    @staticmethod
    def store_error(seam: str) -> Exception:
        """What a failing store raises."""
        return TransientStoreError(f"injected fault at {seam!r}")

    def put(self, *values: str, shard: int | None = None) -> None:
        """Stores records of one key; in the shard of that if none is given."""
        for value in values:
            place = None if shard is None else shard_id(shard)
            self.kinesis.put("s", value.encode(), shard=place)

    def actor(self, group: str | None = "g", **options: Any) -> Actor:
        """A member that is not open yet; closed at the end."""
        actor = Actor(self, f"member-{len(self._actors) + 1}", group, options)
        self._actors.append(actor)
        return actor

    async def member(self, group: str | None = "g", **options: Any) -> Actor:
        """A member that is open; closed at the end."""
        return await self.actor(group, **options).open()

    def consumer(
        self,
        group: str | None = "g",
        *,
        store: CheckpointStore | None = None,
        service: type[FakeService] = FakeService,
        adapter: dict[str, Any] | None = None,
        **options: Any,
    ) -> Consumer:
        """A consumer of the stream; with a handle on the store, if it has a group."""
        made = FakeAdapter(
            "s",
            group=group,
            make_service=lambda: service(self.kinesis, "s"),
            **TIMES | (adapter or {}),
        )
        if group is not None and store is None:
            store = self.store.handle()
        options.setdefault("clock", self.simulation.clock)
        return Consumer(made, store=store, **options)

    async def aclose(self) -> None:
        """Closes all members."""
        for actor in self._actors:
            await actor.adapter.aclose()


def play(
    test: Callable[[Stage], Awaitable[T]],
    *,
    shards: int = 1,
    seed: int = 0,
    limits: ShardLimits | None = None,
    quirks: Quirks | None = None,
    retention: float = 86_400.0,
) -> T:
    """Runs a test on virtual time, and closes what it has opened."""

    async def main(simulation: Simulation) -> T:
        stage = Stage(simulation, shards, limits=limits, quirks=quirks, retention=retention)
        try:
            return await test(stage)
        finally:
            await stage.aclose()

    return simulate(main, seed=seed)
