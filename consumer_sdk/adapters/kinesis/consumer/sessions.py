"""The sessions of all streams of one adapter, as one."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping, Sequence

from consumer_sdk.abc import AssignmentOwner
from consumer_sdk.adapters.fetching import Turns, fetch
from consumer_sdk.adapters.kinesis.consumer.grants import Grant
from consumer_sdk.adapters.kinesis.consumer.session import Session
from consumer_sdk.records import Assignment, Run, Start

__all__ = ["OneQuestion", "Sessions"]


class OneQuestion(AssignmentOwner):
    """The owner, which the sessions ask for starts one after the other."""

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
        """Gives everything up, all streams at the same time. Idempotent."""
        await asyncio.gather(*(session.aclose() for session in self.all))

    def abort(self) -> None:
        """Ends the tasks where they are, as a death of the process would."""
        for session in self.all:
            session.abort()
