"""An open adapter: for each stream the member of the group, its shards and their readers; and all streams together."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Collection, Coroutine, Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

from consumer_sdk.abc import AssignmentOwner, Leases
from consumer_sdk.adapters.assignment_book import AssignmentBook
from consumer_sdk.adapters.kinesis.consumer.discovery import Discovery
from consumer_sdk.adapters.kinesis.consumer.grants import Grant
from consumer_sdk.adapters.kinesis.consumer.membership import Membership
from consumer_sdk.adapters.kinesis.consumer.read_ahead_budget import ReadAheadBudget
from consumer_sdk.adapters.kinesis.consumer.reading import GONE, Reader
from consumer_sdk.adapters.kinesis.consumer.sources import FanOut, Polling, Source
from consumer_sdk.adapters.kinesis.options import KinesisOptions
from consumer_sdk.adapters.kinesis.service.rates import ShardRates
from consumer_sdk.adapters.kinesis.service.service import Service, StreamFacts
from consumer_sdk.adapters.kinesis.starts import NOTHING_LEFT
from consumer_sdk.adapters.session import ReadAheadSession, Turns, fetch
from consumer_sdk.checkpoints.positions import BEGINNING
from consumer_sdk.errors import StoreError
from consumer_sdk.records import Assignment, AtPosition, AtTime, Run, Start, StartPoint

__all__ = ["OneQuestion", "Place", "Session", "Sessions"]


class Place(NamedTuple):
    """A stream that was found.

    Attributes:
        facts: of the stream.
        consumer: the ARN of the fan-out consumer, or None to poll.
        now: the service's clock when the consumer was opened: what "latest" stands for without a
            group, for shards that come later too.
    """

    options: KinesisOptions
    service: Service
    facts: StreamFacts
    consumer: str | None
    now: float


class Session(ReadAheadSession):
    """One stream, from open to close.

    Args:
        room: the budget of bytes that all streams together may read ahead.
        news: set when there may be something to fetch; of all streams.
    """

    def __init__(
        self,
        place: Place,
        owner: AssignmentOwner,
        leases: Leases,
        room: ReadAheadBudget,
        news: asyncio.Event,
    ) -> None:
        self._options, self._service, facts, self._consumer, self.opened_at = place
        super().__init__(f"kinesis {self._options.stream}", lambda: self.grants, news)
        self._rates: dict[str, ShardRates] = {}
        self._readers: dict[Grant, asyncio.Task[None]] = {}
        self._horizons: dict[str, tuple[int, int]] = {}
        self.membership = Membership(
            leases,
            owner,
            is_alone=self._options.group is None,
            make_grant=self._make_grant,
            started=self._started,
            stopped=self._stopped,
            failed=self._failed,
            spawn=self._spawn,
        )
        self.discovery = Discovery(
            self._service,
            leases,
            self._options.stream_name,
            facts,
            interval=self._options.discovery_interval,
            synced=self.membership.nudge,
        )
        self._room = room
        self._leases = leases
        self._begin()

    @property
    def grants(self) -> AssignmentBook[Grant]:
        """All that are held."""
        return self.membership.grants

    def _duties(self) -> Collection[Coroutine[Any, Any, None]]:
        return (
            self.membership.renew(),
            self.membership.run(),
            self.discovery.run(),
            self.membership.rounds.run(),
        )

    # -- grants -------------------------------------------------------------------------

    def _make_grant(self, shard: str, fence: int) -> Grant:
        return Grant(self._options.stream_name, shard, fence, self.news.set)

    def _started(self, grant: Grant) -> None:
        if grant.start is StartPoint.ENDED:
            self.grants.drain([grant])  # the owner has said all about it
            _ = self._spawn(self._end(grant))
            return
        self.grants.open(grant)
        grant.begin(self._first(grant))
        rates = self._rates.setdefault(
            grant.shard,
            ShardRates(self._options.limits, self._options.poll_interval, random.random),
        )
        reader = Reader(
            grant,
            self._source(grant.shard, rates),
            rates,
            self._room,
            now=self._service.time,
            lookup=self.discovery.find,
            check=self.discovery.check,
            on_children=self.discovery.look,
        )
        self._readers[grant] = self._spawn(reader.run())

    def _first(self, grant: Grant) -> Start:
        """Where the reading of a shard begins."""
        start = StartPoint.EARLIEST if grant.start is None else grant.start
        if self.horizon(grant.shard) == NOTHING_LEFT:
            return AtPosition(NOTHING_LEFT)  # that was told; any other start would tell it again
        if isinstance(start, AtPosition) and start.position == BEGINNING:
            return StartPoint.EARLIEST
        is_alone = self._options.group is None
        return AtTime(self.opened_at) if start is StartPoint.LATEST and is_alone else start

    def _source(self, shard: str, rates: ShardRates) -> Source:
        if self._consumer is None:
            return Polling(self._service, shard, rates)
        return FanOut(self._service, shard, self._consumer)

    async def _end(self, grant: Grant) -> None:
        """It was over when it was taken: only its lease did not say so."""
        with suppress(StoreError):  # it is taken again
            await self.end([grant])

    async def end(self, grants: Sequence[Grant]) -> None:
        """Ends shards whose records are all settled in the store.

        Raises:
            StoreError: their leases could not be released.
        """
        for grant in grants:
            self.discovery.look(grant.shard)
        await self.membership.end(grants)

    def pause(self, assignment: Assignment) -> None:
        """Nothing of it is read or fetched."""
        grant = self.grant_of(assignment)
        if grant is not None:
            grant.pause()
            self._room.freed()  # others may take what a paused shard holds

    def drop(self, assignment: Assignment) -> None:
        """Its epoch is over."""
        grant = self.grant_of(assignment)
        if grant is not None:
            self.membership.drop(grant)

    def _stopped(self, grant: Grant) -> None:
        reader = self._readers.pop(grant, None)
        if reader is not None:
            reader.cancel()
        if grant.horizon is not None:
            self._horizons[grant.shard] = grant.horizon
        grant.forget_unread()  # it may be drained for a while, and the others want the room

    def horizon(self, shard: str) -> tuple[int, int] | None:
        """The first position of a shard that was found trimmed; None if unknown."""
        grant = self.grants.at(shard)
        known = self._horizons.get(shard)
        return known if grant is None or grant.horizon is None else grant.horizon

    async def gone(self, shards: Collection[str]) -> Sequence[str]:
        """The shards that are missing from two lists, some seconds apart, and have no lease.

        A listed shard may have records. A lease stays until its shard has ended and its children
        were taken, or until a reader has found that the shard is no longer listed.

        Raises:
            AdapterError: the service does not answer.
            StoreError: the store does not.
        """
        missing = {*shards}.difference(await self.discovery.shards())
        if missing:
            await asyncio.sleep(GONE)
            missing.difference_update(await self.discovery.shards())
            missing.difference_update((await self._leases.view()).leases)
            self.membership.nudge()  # what this view has shown is no news to it any more
        return sorted(missing)

    # -- the end ------------------------------------------------------------------------

    async def _close(self) -> None:
        try:
            await self.membership.leave()
        finally:
            await self._end_tasks()
            # Now: a look at the shards, or a renewal, would find the leases closed, or join again.
            await self.membership.aclose()
            await self._service.aclose()

    async def now(self) -> float:
        """The service's clock."""
        return await self._service.time()

    def grant_of(self, assignment: Assignment) -> Grant | None:
        """What is held under exactly this assignment."""
        return self.grants.of(assignment)


class OneQuestion(AssignmentOwner):
    """The owner, which the sessions ask one after the other where shards start."""

    __slots__ = ("_owner", "_turn")

    def __init__(self, owner: AssignmentOwner) -> None:
        self._owner = owner
        self._turn = asyncio.Lock()

    async def assigned(self, assignments: Sequence[Assignment]) -> Mapping[Assignment, Start]:
        async with self._turn:
            return await self._owner.assigned(assignments)

    async def revoked(self, assignments: Sequence[Assignment], *, deadline: float) -> None:
        await self._owner.revoked(assignments, deadline=deadline)

    def lost(self, assignments: Sequence[Assignment]) -> None:
        self._owner.lost(assignments)


class Sessions:
    """From open to close.

    Args:
        by_stream: the session of each stream.
        news: which all of them set when there may be something to fetch.
    """

    def __init__(self, by_stream: Mapping[str, Session], news: asyncio.Event) -> None:
        self._by_stream = by_stream
        self._news = news
        self._turns = Turns()

    @property
    def all(self) -> Collection[Session]:
        """One for each stream."""
        return self._by_stream.values()

    def of(self, stream: str) -> Session | None:
        """That of a stream."""
        return self._by_stream.get(stream)

    def grant_of(self, assignment: Assignment) -> Grant | None:
        """What is held under exactly this assignment."""
        session = self.of(assignment.partition.stream)
        return None if session is None else session.grant_of(assignment)

    @property
    def opened_at(self) -> float:
        """The service's clock when the consumer was opened."""
        return min(session.opened_at for session in self.all)

    @property
    def held_until(self) -> float:
        """When the first of the memberships may be over."""
        return min(session.membership.held_until for session in self.all)

    async def now(self) -> float:
        """The service's clock."""
        return await next(iter(self.all)).now()

    async def run(self) -> None:
        """Waits for the end.

        Raises:
            ConsumerSdkError: what has ended one of them.
        """
        running = [asyncio.ensure_future(session.run()) for session in self.all]
        try:
            done, _ = await asyncio.wait(running, return_when=asyncio.FIRST_EXCEPTION)
        finally:
            for each in running:
                each.cancel()
            await asyncio.gather(*running, return_exceptions=True)
        for each in done:
            each.result()

    async def fetch(self, max_records: int, max_bytes: int, max_wait: float) -> list[Run]:
        """The next runs, each shard in its turn; waits for some without polling."""

        async def collect() -> list[Run]:
            for session in self.all:
                session.raise_error()
            ready = [grant for session in self.all for grant in session.grants if grant.has_run]
            return self._turns.take(ready, Grant.take, max_records, max_bytes)

        return await fetch(collect, self._news, max_wait)

    async def aclose(self) -> None:
        """Releases everything, all streams at the same time. Idempotent."""
        await asyncio.gather(*(session.aclose() for session in self.all))

    def abort(self) -> None:
        """Ends the tasks at once, as a kill of the process would."""
        for session in self.all:
            session.abort()
