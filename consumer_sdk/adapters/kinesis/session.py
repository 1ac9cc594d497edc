"""One open adapter: its member of the group, the shards that it holds, and who reads them."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Collection, Coroutine
from contextlib import suppress
from typing import Any

from consumer_sdk.abc import AssignmentOwner, Leases
from consumer_sdk.adapters.kinesis.discovery import Discovery
from consumer_sdk.adapters.kinesis.fan_out import FanOut
from consumer_sdk.adapters.kinesis.granting import Granting
from consumer_sdk.adapters.kinesis.grants import Grant, GrantState
from consumer_sdk.adapters.kinesis.membership import Membership
from consumer_sdk.adapters.kinesis.options import KinesisOptions
from consumer_sdk.adapters.kinesis.rates import ShardRates
from consumer_sdk.adapters.kinesis.reading import Reader
from consumer_sdk.adapters.kinesis.room import Room
from consumer_sdk.adapters.kinesis.service import Service, StreamFacts
from consumer_sdk.adapters.kinesis.sources import Polling, Source
from consumer_sdk.adapters.kinesis.starts import NOTHING_LEFT
from consumer_sdk.adapters.session import ReadAheadSession
from consumer_sdk.errors import StoreError
from consumer_sdk.records import Assignment, AtPosition, AtTime, Start, StartPoint

__all__ = ["Session"]


class Session(ReadAheadSession):
    """From open to close.

    Args:
        facts: of the stream.
        now: the service's clock when the consumer was opened: what "latest" stands for without a
            group, for shards that come later too.
        consumer: the ARN of the fan-out consumer, or None to poll.
    """

    def __init__(
        self,
        options: KinesisOptions,
        service: Service,
        owner: AssignmentOwner,
        leases: Leases,
        facts: StreamFacts,
        *,
        now: float,
        consumer: str | None,
    ) -> None:
        super().__init__(f"kinesis {options.stream}", lambda: self.grants)
        self._options = options
        self._service = service
        self._consumer = consumer
        self.opened_at = now
        self._rates: dict[str, ShardRates] = {}
        self._readers: dict[Grant, asyncio.Task[None]] = {}
        self._horizons: dict[str, tuple[int, int]] = {}
        self.granting = Granting(
            owner,
            lambda: list(self.grants),
            started=self._started,
            declined=lambda grant: self.membership.drop(grant),
            failed=self._failed,
        )
        self.membership = Membership(
            leases,
            owner,
            make_grant=self._make_grant,
            stopped=self._stopped,
            withdraw=self.granting.withdraw,
            spawn=self._spawn,
        )
        self.discovery = Discovery(
            service,
            leases,
            options.stream_name,
            facts,
            interval=options.discovery_interval,
            synced=self.membership.nudge,
        )
        self._room = Room(lambda: self.grants, options.buffer_bytes)
        self._begin()

    @property
    def grants(self) -> Collection[Grant]:
        """All that are held."""
        return self.membership.grants.values()

    def _duties(self) -> Collection[Coroutine[Any, Any, None]]:
        return (
            self.membership.renew(),
            self.membership.run(),
            self.discovery.run(),
            self.granting.run(),
        )

    # -- grants -------------------------------------------------------------------------

    def _make_grant(self, shard: str, fence: int) -> Grant:
        self.granting.wake()
        return Grant(self._options.stream_name, shard, fence, self.news.set)

    def _started(self, grant: Grant, start: Start) -> None:
        if start is StartPoint.ENDED:
            grant.state = GrantState.DRAINING  # the owner has said all about it
            _ = self._spawn(self._end(grant))
            return
        is_alone = self._options.group is None
        if self.horizon(grant.shard) == NOTHING_LEFT:
            start = AtPosition(NOTHING_LEFT)  # that was told; any other start would tell it again
        grant.begin(AtTime(self.opened_at) if start is StartPoint.LATEST and is_alone else start)
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
            on_children=self.discovery.look,
        )
        self._readers[grant] = self._spawn(reader.run())

    def _source(self, shard: str, rates: ShardRates) -> Source:
        if self._consumer is None:
            return Polling(self._service, shard, rates)
        return FanOut(self._service, shard, self._consumer)

    async def _end(self, grant: Grant) -> None:
        """It was over when it was taken: only its lease did not say so."""
        with suppress(StoreError):  # it is taken again
            await self.end(grant)

    async def end(self, grant: Grant) -> None:
        """All of its records are settled, and the store knows.

        Raises:
            StoreError: its lease could not be released.
        """
        self.discovery.look(grant.shard)
        await self.membership.end(grant)

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
        """The first record of a shard that was found trimmed; None where nobody has looked."""
        grant = self.membership.grants.get(shard)
        known = self._horizons.get(shard)
        return known if grant is None or grant.horizon is None else grant.horizon

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
        return self.membership.grant_of(assignment)
