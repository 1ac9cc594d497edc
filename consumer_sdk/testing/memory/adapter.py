"""`MemoryAdapter`: a consumer of the in-memory broker."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import ClassVar, TypeVar

from consumer_sdk.abc import Adapter, AssignmentOwner, DeadLetters, LeaseSource
from consumer_sdk.adapters.session import fetch
from consumer_sdk.adapters.urls import shown, split_url, topics_of
from consumer_sdk.errors import AdapterError, ConfigurationError, ConsumerClosedError
from consumer_sdk.options import given_fields, instance, kinds_of, names_of, read_texts
from consumer_sdk.records import (
    AckFlush,
    Assignment,
    Committed,
    Outcome,
    Partition,
    Position,
    Run,
    Start,
)
from consumer_sdk.records.outputs import Output
from consumer_sdk.testing.faults import Faults
from consumer_sdk.testing.memory.broker import MemoryBroker
from consumer_sdk.testing.memory.options import ConsumerKind, Options
from consumer_sdk.testing.memory.session import Session

__all__ = ["MemoryAdapter"]

T = TypeVar("T")

FORM = "write memory://broker/stream?group=name&subscription=shared"

CLOSE_PATIENCE = 1.0
"""Seconds that a cancelled coordination may take to end."""


class _Calls:
    """One consumer's round trips to the broker, and what may go wrong on the way.

    Attributes:
        is_crashed: the process was killed: every call hangs.
    """

    def __init__(self, faults: Faults | None) -> None:
        self.is_crashed = False
        self._faults = faults

    async def make(self, seam: str, effect: Callable[[], T]) -> T:
        """One round trip: ``effect()`` takes place at the broker."""

        async def arrive() -> T:
            await self.alive()
            return effect()

        result = await (self._faults.around(seam, arrive) if self._faults else arrive())
        await self.alive()
        return result

    async def alive(self) -> None:
        """Hangs, if the process was killed."""
        if self.is_crashed:
            await asyncio.get_running_loop().create_future()


class MemoryAdapter(Adapter):
    """Consumes streams of a `MemoryBroker`, as Kafka's or Pulsar's consumers do.

    ================  ========================================================================
    ``"group"``       partitions are shared out; the group's position is kept for each (Kafka)
    ``"failover"``    partitions are shared out; each record is acked by itself (Pulsar)
    ``"shared"``      a queue: every consumer has all partitions, and records take turns
    ``"key_shared"``  a queue: … while one of a key is with a consumer, so are the next of it
    ================  ========================================================================

    Args:
        broker: where the streams are.
        streams: names, one by one or in a list; they exist when the consumer starts.
        group: the consumer group; None: all partitions, and no commits.
        subscription: see the table. All consumers of a group need the same one.
        metadata_size: characters of checkpoint that a group's commit may carry; with 0 a commit
            is a position alone, and records settled above a hole are delivered again.
        prefetch: records that the broker sends a subscriber ahead of its fetches, about.
        batch_index_acks: if an entry of several records was acked in part, it is not redelivered as
            a whole.
        faults: fails and delays calls of this consumer: at ``"open"``, ``"fetch"``, ``"commit"``,
            ``"committed"``, ``"positions"``, ``"lag"``; of single partitions at ``"fetch.partition"`` and
            ``"commit.partition"``; and ``"acks"``, which are lost with the connection.
    """

    broker: ClassVar[str] = "memory"

    def __init__(
        self,
        broker: MemoryBroker,
        *streams: str | Sequence[str],
        group: str | None = None,
        subscription: ConsumerKind = "group",
        metadata_size: int = 4096,
        prefetch: int = 1000,
        batch_index_acks: bool = False,
        faults: Faults | None = None,
    ) -> None:
        instance(MemoryBroker, "a MemoryBroker()").check("broker", broker, "MemoryAdapter")
        given = {**locals(), "streams": names_of(streams)}
        self._options = Options(**given_fields(Options, given))
        self.group = group
        self.capabilities = self._options.capabilities
        self.memory = broker
        self._faults = faults
        self._calls = _Calls(faults)
        self._opened: Session | None = None
        self._task: asyncio.Task[None] | None = None
        self._news = asyncio.Event()
        self._in_transit: list[Run] = []

    @classmethod
    def from_url(cls, url: str) -> MemoryAdapter:
        """The adapter for ``memory://broker/stream[,stream...][?group=...&subscription=...]``.

        Raises:
            ConfigurationError: the URL is malformed, or no broker has that name.
        """
        parts, texts = split_url(url, {"memory"}, FORM)
        streams = topics_of(parts.path)
        if not streams:
            raise ConfigurationError(f"{shown(url)}: the streams are missing in the URL: {FORM}")
        kinds = kinds_of(Options)
        options = read_texts(texts, {name: kinds[name] for name in ("group", "subscription")})
        return cls(MemoryBroker.named(parts.netloc), *streams, **options)

    def __repr__(self) -> str:
        streams = ", ".join(map(repr, self._options.streams))
        return f"MemoryAdapter({streams}, group={self.group!r})"

    async def open(self, owner: AssignmentOwner, leases: LeaseSource | None = None) -> None:  # noqa: ARG002 - the group assigns
        """Joins the group."""
        if self._opened is not None:
            raise ConfigurationError("this MemoryAdapter was opened before; make a new one")
        session = Session(self.memory, self._options, self._faults, owner, self._news.set)
        await self._calls.make("open", _nothing)
        self._opened, member = session, session.membership
        self._task = asyncio.create_task(member.coordinate(), name=f"memory:{member.member.id}")
        self._task.add_done_callback(lambda _: self._news.set())

    @property
    def _session(self) -> Session:
        if self._opened is None:
            raise ConsumerClosedError("this MemoryAdapter is not open")
        return self._opened

    async def run(self) -> None:
        """Waits for an error of the group coordination, and raises it."""
        if self._task is not None:
            await asyncio.wait({self._task})
            if not self._task.cancelled():
                self._task.result()

    async def fetch(self, *, max_records: int, max_bytes: int, max_wait: float) -> list[Run]:
        """Returns the next runs; waits for records without polling."""
        collect = partial(self._collect, max_records, max_bytes)
        return await fetch(collect, self._news, max_wait)

    async def _collect(self, max_records: int, max_bytes: int) -> list[Run]:
        await self._calls.alive()
        self._raise_error()
        if self._faults is None:
            return self._session.read(max_records, max_bytes)

        def read() -> list[Run]:
            # What is on its way when the fetch is cancelled comes out of the next one; a revoke
            # may overtake it.
            self._in_transit = self._in_transit or self._session.read(max_records, max_bytes)
            return self._in_transit

        runs = await self._calls.make("fetch", read)
        self._in_transit = []
        return runs

    def _raise_error(self) -> None:
        membership = self._session.membership
        if membership.error is not None:
            error, membership.error = membership.error, None
            raise error
        if self._task is not None and self._task.done() and not self._task.cancelled():
            self._task.result()

    def pause(self, assignment: Assignment) -> None:
        """Stops fetching a partition, and keeps its position."""
        holding = self._session.membership.holdings.of(assignment)
        if holding is not None:
            holding.is_paused = True

    def resume(self, assignment: Assignment) -> None:
        """Undoes `pause`."""
        holding = self._session.membership.holdings.of(assignment)
        if holding is not None:
            holding.resume()
            holding.news()

    async def commit(self, flushes: Sequence[AckFlush]) -> list[Outcome]:
        """Stores the group's positions, or acks records, of partitions that are held."""
        try:
            return await self._calls.make("commit", lambda: self._session.commit(flushes))
        except AdapterError as error:
            return [Outcome.retry(error) for _ in flushes]

    async def transact(
        self, flushes: Sequence[AckFlush], write: Callable[[Output], None]
    ) -> list[Outcome]:
        """Stores the group's positions together with the outputs of their records, for `MemoryTransactions`.

        Raises:
            AdapterError: there was no answer; whether it took place is in the flushes' outputs.
        """
        return await self._calls.make("commit", lambda: self._session.transact(flushes, write))

    async def committed(
        self, assignments: Sequence[Assignment]
    ) -> Mapping[Assignment, Committed | None]:
        """The group's position, as the broker knows it."""
        return await self._calls.make("committed", lambda: self._session.committed(assignments))

    async def positions(
        self, assignments: Sequence[Assignment], at: Start
    ) -> Mapping[Assignment, Position | None]:
        """The position of a start at this moment."""
        return await self._calls.make("positions", lambda: self._session.positions(assignments, at))

    async def partitions(self, stream: str) -> Sequence[Partition]:
        """All partitions of a stream."""
        return await self._calls.make("positions", lambda: self.memory.partitions(stream))

    async def lag(self, assignments: Sequence[Assignment]) -> Mapping[Assignment, int | None]:
        """Positions between the next fetch and the end; of a subscription, records."""
        return await self._calls.make("lag", lambda: self._session.lag(assignments))

    def drop(self, assignment: Assignment) -> None:
        """Stops fetching a partition. It is granted again, if the group has not moved it."""
        self._session.membership.drop(assignment)

    def identity(self, assignment: Assignment) -> str | None:
        """Differs between streams of one name, made one after another."""
        return self._session.identity(assignment)

    def gaps(self, positions: Sequence[Position]) -> Sequence[int]:
        """Of a subscription's places ``(entry, index)``: entries are named by their first position."""
        numbers = list(map(sum, positions))
        return [at for at in range(1, len(numbers)) if numbers[at] > numbers[at - 1] + 1]

    def encode_position(self, position: Position) -> str:
        """Decimal digits; of a subscription, ``entry:index``."""
        return self._options.positions.encode(position)

    def decode_position(self, text: str) -> Position:
        """Reads `encode_position` back."""
        return self._options.positions.decode(text)

    def dead_letters(self) -> DeadLetters | None:
        """The broker's own dead letters: ``broker.dead_letters.letters``."""
        return self.memory.dead_letters

    async def aclose(self) -> None:
        """Releases all partitions, then leaves the group."""
        if self._opened is None or self._task is None:
            return
        if self._calls.is_crashed:
            self._task.cancel()
        else:
            self._opened.membership.close()
        try:
            timeout = self._opened.membership.group.rebalance_timeout
            await asyncio.wait({self._task}, timeout=timeout)
        finally:
            self._task.cancel()
            await asyncio.wait({self._task}, timeout=CLOSE_PATIENCE)

    # -- what goes wrong ------------------------------------------------------------------

    def crash(self) -> None:
        """Does what ``kill -9`` does to the consumer: every call hangs, and heartbeats stop.

        Others get its partitions when the session has timed out. `aclose` only ends the tasks.
        """
        self._calls.is_crashed = True
        if self._opened is not None:
            self._opened.membership.crash()

    def expire(self) -> None:
        """Ends the session as if heartbeats had been lost. The consumer goes on, and is told of the loss."""
        if self._opened is not None:
            self._opened.membership.group.expel(self._opened.membership.member)

    def disconnect(self) -> None:
        """Breaks a subscriber's connections. Unacked records are redelivered, to any consumer.

        The connections are back after 0.1 seconds, under the same assignments. A consumer of a
        group does not notice.
        """
        if self._opened is not None:
            self._opened.cut()


def _nothing() -> None:
    pass
