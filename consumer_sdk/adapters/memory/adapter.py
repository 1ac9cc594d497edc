"""`MemoryAdapter`: a consumer of the in-memory broker."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import ClassVar, TypeVar
from urllib.parse import parse_qsl, unquote, urlsplit

from consumer_sdk.abc import Adapter, AssignmentOwner, DeadLetters, Leases
from consumer_sdk.adapters.memory.broker import MemoryBroker, Seam
from consumer_sdk.adapters.memory.commits import Commits, decode_position
from consumer_sdk.adapters.memory.holding import Holding, resolve
from consumer_sdk.adapters.memory.membership import Membership
from consumer_sdk.adapters.memory.reader import Reader
from consumer_sdk.errors import (
    AdapterError,
    ConfigurationError,
    ConsumerClosedError,
    PartitionLostError,
)
from consumer_sdk.records import (
    AckFlush,
    Assignment,
    Capabilities,
    Checkpoint,
    Outcome,
    OutcomeKind,
    Position,
    Run,
    Start,
)

__all__ = ["MemoryAdapter"]

T = TypeVar("T")

CLOSE_PATIENCE = 1.0
"""Seconds that a cancelled coordination may take to end."""


class MemoryAdapter(Adapter):
    """Consumes streams of a `MemoryBroker` as a member of a group.

    Args:
        broker: where the streams are.
        streams: names; they exist when the consumer starts.
        group: whose position it is; None: all partitions and no commits.
        metadata_size: characters of checkpoint that a commit may carry; with 0 a commit is a
            position alone, and records settled above a hole are delivered again.
        seam: injects faults into calls of this consumer.
    """

    broker: ClassVar[str] = "memory"

    def __init__(
        self,
        broker: MemoryBroker,
        *streams: str,
        group: str | None = None,
        metadata_size: int = 4096,
        seam: Seam | None = None,
    ) -> None:
        if not streams:
            raise ConfigurationError("MemoryAdapter: name at least one stream")
        if metadata_size < 0:
            raise ConfigurationError(f"MemoryAdapter(metadata_size={metadata_size}): 0 or more")
        self.group = group
        self.capabilities = Capabilities(
            commits=group is not None, metadata_size=metadata_size if group else 0
        )
        self.memory = broker
        self._streams = streams
        self._seam = seam
        self._membership: Membership | None = None
        self._task: asyncio.Task[None] | None = None
        self._news = asyncio.Event()
        self._in_transit: list[Run] = []
        self._reader = Reader(seam)
        self._commits = Commits(self.capabilities.metadata_size)
        self._is_crashed = False

    @classmethod
    def from_url(cls, url: str) -> MemoryAdapter:
        """The adapter for ``memory://broker/stream[,stream...][?group=...]``.

        Raises:
            ConfigurationError: the URL is malformed, or no broker has that name.
        """
        parts = urlsplit(url)
        options = dict(parse_qsl(parts.query))
        group = options.pop("group", None)
        streams = [unquote(name) for name in parts.path.strip("/").split(",") if name]
        if parts.scheme != "memory" or not streams or options:
            raise ConfigurationError(f"{url!r}: write memory://broker/stream?group=name")
        return cls(MemoryBroker.named(parts.netloc), *streams, group=group)

    async def open(self, owner: AssignmentOwner, leases: Leases | None = None) -> None:  # noqa: ARG002 - the group assigns
        """Joins the group."""
        if self._membership is not None:
            raise ConfigurationError("this MemoryAdapter was opened before; make a new one")
        for stream in self._streams:
            self.memory.stream(stream)
        await self._call("open", _nothing)
        self._membership = Membership(self.memory, self._streams, self.group, owner, self._news.set)
        self._task = asyncio.create_task(
            self._membership.coordinate(), name=f"memory:{self._membership.member.id}"
        )
        self._task.add_done_callback(lambda _: self._news.set())

    async def run(self) -> None:
        """Raises what ended the coordination with the group, if anything does."""
        if self._task is not None:
            await asyncio.wait({self._task})
            if not self._task.cancelled():
                self._task.result()

    async def fetch(self, *, max_records: int, max_bytes: int, max_wait: float) -> list[Run]:
        """The next runs; waits for data without polling."""
        loop = asyncio.get_running_loop()
        until = loop.time() + max_wait
        while True:
            # Cleared first: news that come while a call is on its way are not slept through.
            self._news.clear()
            runs = await self._collect(max_records, max_bytes)
            if runs or loop.time() >= until:
                return runs
            timer = loop.call_at(until, self._news.set)
            try:
                await self._news.wait()
            finally:
                timer.cancel()

    def pause(self, assignment: Assignment) -> None:
        """Stops fetching it, keeping its position."""
        holding = self._holding(assignment)
        if holding is not None:
            holding.is_paused = True

    def resume(self, assignment: Assignment) -> None:
        """Undoes `pause`."""
        holding = self._holding(assignment)
        if holding is not None:
            holding.is_paused = False
            self._news.set()

    async def commit(self, flushes: Sequence[AckFlush]) -> list[Outcome]:
        """Stores the group's positions, each fenced by generation."""

        async def apply() -> list[Outcome]:
            return [self._commit(flush) for flush in flushes]

        try:
            return await self._call("commit", apply)
        except AdapterError as error:
            return [Outcome.retry(error) for _ in flushes]

    async def committed(
        self, assignments: Sequence[Assignment]
    ) -> Mapping[Assignment, Checkpoint | None]:
        """What the group has committed."""

        async def read() -> Mapping[Assignment, Checkpoint | None]:
            return {assignment: self._committed(assignment) for assignment in assignments}

        return await self._call("committed", read)

    async def positions(
        self, assignments: Sequence[Assignment], at: Start
    ) -> Mapping[Assignment, Position | None]:
        """What a start stands for now."""

        async def read() -> Mapping[Assignment, Position | None]:
            logs = {assignment: self.memory.log(assignment.partition) for assignment in assignments}
            return {a: None if log is None else resolve(log, at) for a, log in logs.items()}

        return await self._call("positions", read)

    async def lag(self, assignments: Sequence[Assignment]) -> Mapping[Assignment, int | None]:
        """Positions between the next fetch and the end."""

        def of(holding: Holding | None) -> int | None:
            if holding is None or holding.position is None:
                return None
            return max(0, holding.log.end - holding.position)

        async def read() -> Mapping[Assignment, int | None]:
            return {assignment: of(self._holding(assignment)) for assignment in assignments}

        return await self._call("lag", read)

    def drop(self, assignment: Assignment) -> None:
        """Stops fetching it; it is granted again if the group has not moved it."""
        if self._membership is not None:
            self._membership.drop(assignment)

    def identity(self, assignment: Assignment) -> str | None:
        """Differs between streams of one name, made one after another."""
        holding = self._holding(assignment)
        return holding.identity if holding else self.memory.identity(assignment.partition)

    def encode_position(self, position: Position) -> str:
        """Decimal digits."""
        return str(position)

    def decode_position(self, text: str) -> int:
        """Reads `encode_position` back."""
        return decode_position(text)

    def dead_letters(self) -> DeadLetters:
        """The broker's own: ``broker.dead_letters.letters``."""
        return self.memory.dead_letters

    async def aclose(self) -> None:
        """Gives up what is held, then leaves the group."""
        if self._membership is None or self._task is None:
            return
        if self._is_crashed:
            self._task.cancel()
        else:
            self._membership.close()
        try:
            await asyncio.wait({self._task}, timeout=self._membership.group.rebalance_timeout)
        finally:
            self._task.cancel()
            await asyncio.wait({self._task}, timeout=CLOSE_PATIENCE)

    def crash(self) -> None:
        """Does what ``kill -9`` does to the consumer: every call hangs, and heartbeats stop.

        The group gives its partitions to others when the session has timed out. `aclose` only
        ends the tasks.
        """
        self._is_crashed = True
        if self._membership is not None:
            self._membership.crash()

    def expire(self) -> None:
        """Ends the session as if heartbeats had been lost: the consumer lives, and is told."""
        if self._membership is not None:
            self._membership.group.expel(self._membership.member)

    async def _collect(self, max_records: int, max_bytes: int) -> list[Run]:
        if self._is_crashed:
            await _never()
        self._raise_error()
        if self._seam is None:
            return self._read(max_records, max_bytes)

        async def read() -> list[Run]:
            # What is on its way when the fetch is cancelled comes out of the next one; a revoke
            # may overtake it.
            self._in_transit = self._in_transit or self._read(max_records, max_bytes)
            return self._in_transit

        runs = await self._call("fetch", read)
        self._in_transit = []
        return runs

    def _read(self, max_records: int, max_bytes: int) -> list[Run]:
        if self._membership is None:
            raise ConsumerClosedError("this MemoryAdapter is not open")
        return self._reader.read(self._membership.holdings.values(), max_records, max_bytes)

    def _commit(self, flush: AckFlush) -> Outcome:
        strike = self._seam.strike("commit.partition") if self._seam else None
        if strike != "before":
            outcome = self._apply(flush)
        if self._seam and strike:
            return Outcome.retry(self._seam.error("commit.partition"))
        return outcome

    def _apply(self, flush: AckFlush) -> Outcome:
        membership, partition = self._membership, flush.assignment.partition
        holding = self._holding(flush.assignment)
        if membership is None or holding is None or not membership.is_current(holding):
            lost = PartitionLostError(
                f"{partition} is not held under epoch {flush.assignment.epoch}"
            )
            return Outcome(OutcomeKind.FENCED, error=lost)
        if self.memory.identity(partition) != holding.identity:
            gone = AdapterError(f"stream {partition.stream!r} was deleted")
            return Outcome(OutcomeKind.GONE, error=gone)
        if self.group is None:
            return Outcome(OutcomeKind.SENT)  # nobody keeps it, and nobody can show it
        return self._commits.store(membership, flush, holding.log.start)

    def _committed(self, assignment: Assignment) -> Checkpoint | None:
        if self.group is None:
            return None
        group = self.memory.group(self.group)
        return self._commits.load(group, assignment.partition, self.identity(assignment))

    def _holding(self, assignment: Assignment) -> Holding | None:
        return self._membership.holding(assignment) if self._membership else None

    def _raise_error(self) -> None:
        membership = self._membership
        if membership is not None and membership.error is not None:
            error, membership.error = membership.error, None
            raise error
        if self._task is not None and self._task.done() and not self._task.cancelled():
            self._task.result()

    async def _call(self, seam: str, effect: Callable[[], Awaitable[T]]) -> T:
        """One round trip to the broker."""

        async def arrive() -> T:
            if self._is_crashed:
                await _never()
            return await effect()

        result = await (self._seam.around(seam, arrive) if self._seam else arrive())
        if self._is_crashed:
            await _never()
        return result


async def _nothing() -> None:
    pass


async def _never() -> None:
    await asyncio.get_running_loop().create_future()
