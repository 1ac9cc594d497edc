"""Looks up the list of shards: from time to time, and when a shard has ended."""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import TypeVar

from consumer_sdk.abc import Leases
from consumer_sdk.adapters.kinesis.service.service import (
    Service,
    Shard,
    ShardGoneError,
    StreamFacts,
)
from consumer_sdk.errors import AdapterError, TransientAdapterError, TransientStoreError
from consumer_sdk.log_limits import REPEATS

__all__ = ["Discovery"]

T = TypeVar("T")

log = logging.getLogger(__name__)

FIRST_BACKOFF = 0.5
LONGEST_BACKOFF = 10.0

SHORTEST = 1.0
"""Seconds between two looks at the very least."""

FRESH = 1.0
"""Seconds before a reader's question at which the look may have begun that answers it: many shards end,
or fail, at the same moment, and AWS allows an account few of these requests."""

GONE = 3
"""Answers in a row that the stream is not there, a pause apart, that are believed."""

PAUSE = 1.0
"""Seconds between those."""

MOST_LOOKS = 60
"""How often children are looked for that should be there; they may have expired themselves."""


class Discovery:
    """Keeps the leases in step with the list of shards.

    Args:
        facts: of the stream when it was opened.
        interval: seconds between two looks.
        synced: called when the leases know of all shards.
    """

    def __init__(
        self,
        service: Service,
        leases: Leases,
        stream: str,
        facts: StreamFacts,
        *,
        interval: float,
        synced: Callable[[], None],
    ) -> None:
        self._service = service
        self._leases = leases
        self._stream = stream
        self._facts = facts
        self._interval = interval
        self._synced = synced
        self._sooner = asyncio.Event()
        self._childless: dict[str, int] = {}
        self._turn = asyncio.Lock()
        self._found: Sequence[Shard] | AdapterError = ()
        self._looked_at = -math.inf

    def look(self, parent: str) -> None:
        """Looks for the children of a shard that has ended; they may be listed late."""
        self._childless.setdefault(parent, MOST_LOOKS)
        self._sooner.set()

    async def run(self) -> None:
        """Looks for ever.

        Raises:
            AdapterError: the stream was deleted, or made again.
            StoreError: what is stored as leases cannot be used.
        """
        backoff = FIRST_BACKOFF
        while True:
            self._sooner.clear()
            try:
                await self._look()
            except (TransientAdapterError, TransientStoreError) as error:
                log.warning(
                    "%s: shards could not be looked up: %s", self._stream, error, extra=REPEATS
                )
                await asyncio.sleep(backoff)
                backoff = min(backoff * 2, LONGEST_BACKOFF)
                continue
            backoff = FIRST_BACKOFF
            await self._rest()

    async def _look(self) -> None:
        shards = await self._share(0.0)
        parents = {shard.id: shard.parents for shard in shards}
        await self._leases.sync(parents, identity=self._facts.identity)
        self._synced()
        known = {parent for each in parents.values() for parent in each}
        left = {shard: looks - 1 for shard, looks in self._childless.items() if shard not in known}
        self._childless = {shard: looks for shard, looks in left.items() if looks}

    async def _rest(self) -> None:
        await asyncio.sleep(min(SHORTEST, self._interval))
        if self._childless:
            return
        with suppress(TimeoutError):
            async with asyncio.timeout(self._interval):
                await self._sooner.wait()

    async def find(self, shard: str) -> Shard | None:
        """The list's entry of a shard; None if the shard is no longer listed. A shard with children is closed.

        The entry is at most `FRESH` seconds old.

        Raises:
            AdapterError: the stream is not the one that was opened.
        """
        listed = await self._share(FRESH)
        is_parent = any(shard in each.parents for each in listed)
        for each in listed:
            if each.id == shard:
                return replace(each, is_closed=each.is_closed or is_parent)
        return None

    async def check(self) -> None:
        """Looks now.

        Raises:
            AdapterError: the stream is not the one that was opened, or does not answer.
        """
        await self._share(0.0)

    async def _share(self, age: float) -> Sequence[Shard]:
        """What a look finds that began so many seconds before this question at most, or later.

        One is under way at a time, and all who ask meanwhile hear what has come of it, also an error.
        Whoever is cancelled while it looks leaves that to the next one.
        """
        time = asyncio.get_running_loop().time
        asked = time()
        async with self._turn:
            if self._looked_at < asked - age:
                began = time()
                try:
                    self._found = await self._whole()
                except AdapterError as error:
                    self._found = error
                self._looked_at = began
            found = self._found
        if isinstance(found, AdapterError):
            raise found
        return found

    async def _whole(self) -> Sequence[Shard]:
        shards = await self._listed()
        # Of a stream that was made again the shards have the same names. In step with those, the
        # leases would be another stream's; and the members that are of it would lose theirs.
        await self._check()
        return shards

    async def shards(self) -> Sequence[str]:
        """The ids of all listed shards.

        Raises:
            AdapterError: the stream was deleted, or the service does not answer.
        """
        return [shard.id for shard in await self._share(FRESH)]

    async def _listed(self) -> Sequence[Shard]:
        shards = await self._there(self._service.shards)
        if not shards:
            raise TransientAdapterError(
                f"{self._stream!r} lists no shards, and each stream has some"
            )
        return shards

    async def _there(self, ask: Callable[[], Awaitable[T]]) -> T:
        """What the stream answers; one answer that it is not there, as of a proxy, is no end.

        Raises:
            AdapterError: it was deleted.
        """
        for again in reversed(range(GONE)):
            try:
                return await ask()
            except ShardGoneError as error:
                gone = error
            await asyncio.sleep(PAUSE if again else 0)
        raise AdapterError(f"the stream {self._stream!r} was deleted while it was read") from gone

    async def _check(self) -> None:
        facts = await self._there(self._service.describe)
        if facts.identity != self._facts.identity:
            raise AdapterError(
                f"the stream {self._stream!r} was deleted and made again while it was read: start "
                f"the consumers anew; checkpoints of the one before do not fit, and the error that "
                f"says so tells how to delete them"
            )
