"""One member of a group: takes shards, gives them up, and says that it lives.

Two tasks beside those of the shards. One renews, whatever else waits for the store. The other looks
at the leases whenever they have changed, and does its part of what `balance` says; a shard that
another member waits for is drained in a task of its own. What may be read follows from the leases
alone: a child shard is taken by nobody before all of its parents have ended there.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from typing import Any

from consumer_sdk.abc import AssignmentOwner, Leases
from consumer_sdk.adapters.kinesis.bench import Bench
from consumer_sdk.adapters.kinesis.grants import Grant, GrantState
from consumer_sdk.errors import StoreError, TransientStoreError
from consumer_sdk.records import Assignment, Moves
from consumer_sdk.records.balance import moves

__all__ = ["Membership"]

log = logging.getLogger(__name__)

RETRY = 0.2
"""Seconds until a store that did not answer is asked again."""

DRAIN_SHARE = 0.8
"""How much of the time for a handover a drain may take; the rest is for the release."""


class Membership:
    """What this member holds.

    Args:
        make_grant: for a shard that was taken, with its fence.
        stopped: called with a grant of which nothing is to be read any more.
        withdraw: ends the question to the owner about a grant.
        spawn: starts a task that ends with the session.

    Attributes:
        grants: by shard.
    """

    def __init__(
        self,
        leases: Leases,
        owner: AssignmentOwner,
        *,
        make_grant: Callable[[str, int], Grant],
        stopped: Callable[[Grant], None],
        withdraw: Callable[[Grant], Awaitable[None]],
        spawn: Callable[[Coroutine[Any, Any, None]], asyncio.Task[None]],
    ) -> None:
        self._leases = leases
        self._owner = owner
        self._make_grant = make_grant
        self._stopped = stopped
        self._withdraw = withdraw
        self._spawn = spawn
        self._bench = Bench()
        self._to_release: dict[str, int] = {}
        self._joined = asyncio.Event()
        self._nudge = asyncio.Event()
        self._handovers: dict[Grant, asyncio.Task[None]] = {}
        self._is_leaving = False
        self.grants: dict[str, Grant] = {}

    def nudge(self) -> None:
        """Look at the leases now."""
        self._nudge.set()

    def grant_of(self, assignment: Assignment) -> Grant | None:
        """What is held under exactly this assignment."""
        grant = self.grants.get(assignment.partition.id)
        return grant if grant is not None and grant.assignment is assignment else None

    # -- living -------------------------------------------------------------------------

    async def renew(self) -> None:
        """Says for ever that this member lives, and hears what it has lost.

        Raises:
            StoreError: what is stored as leases cannot be used.
        """
        pause = self._leases.duration / 3
        while True:
            try:
                self._lose(await self._leases.renew())
                self._joined.set()
                await asyncio.sleep(pause)
            except TransientStoreError as error:
                log.warning("leases could not be renewed: %s", error)
                await asyncio.sleep(min(RETRY, pause))

    async def run(self) -> None:
        """Takes and hands over, for ever.

        Raises:
            StoreError: what is stored as leases cannot be used.
        """
        await self._joined.wait()
        while not self._is_leaving:
            self._nudge.clear()
            try:
                await self._turn()
                await self._rest()
            except TransientStoreError as error:
                log.warning("leases could not be looked at: %s", error)
                await asyncio.sleep(RETRY)

    async def _turn(self) -> None:
        await self._release_dropped()
        view = await self._leases.view()
        todo = moves(view)
        await self._take(todo)
        await self._leases.want(todo.want)
        unknown = {s: view.leases[s].fence for s in todo.hand_over if s not in self.grants}
        if unknown:  # a take or a release whose reply was lost
            await self._leases.release(unknown)
        for shard in todo.hand_over:
            if shard in self.grants:
                self._hand_over_soon(self.grants[shard])

    async def _rest(self) -> None:
        """Until something has changed, somebody may have died, or a benched shard may come back."""
        pause = min(self._leases.duration / 3, self._bench.pause())
        changed = asyncio.ensure_future(self._leases.changed(pause))
        nudged = asyncio.ensure_future(self._nudge.wait())
        try:
            await asyncio.wait({changed, nudged}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            nudged.cancel()
            changed.cancel()
            await asyncio.gather(changed, nudged, return_exceptions=True)
        if not changed.cancelled():
            changed.result()

    # -- taking -------------------------------------------------------------------------

    async def _take(self, todo: Moves) -> None:
        wanted = {s: fence for s, fence in todo.take.items() if not self._bench.has(s)}
        for shard, fence in (await self._leases.take(wanted)).items():
            self._lose([shard])  # under an older fence, whose loss was not told yet
            if self._is_leaving:
                self._to_release[shard] = fence
            else:
                self.grants[shard] = self._make_grant(shard, fence)

    # -- giving up ----------------------------------------------------------------------

    def _lose(self, shards: Sequence[str]) -> None:
        """Somebody else may read them."""
        grants = [self.grants[shard] for shard in shards if shard in self.grants]
        for grant in grants:
            log.warning("%s is not held any more", grant.assignment.partition)
            self._end(grant)

    def _end(self, grant: Grant) -> None:
        """Nothing of it is fetched, and its trackers take no more."""
        if self.grants.get(grant.shard) is grant:
            del self.grants[grant.shard]
        grant.close()
        self._stopped(grant)
        self._owner.lost([grant.assignment])
        self._nudge.set()

    def drop(self, grant: Grant) -> None:
        """Its epoch is over; the shard is taken again after a while, by whoever should have it."""
        if grant.state is not GrantState.CLOSED:
            self._bench.put(grant.shard)
            self._to_release[grant.shard] = grant.fence
            self._end(grant)

    async def _release_dropped(self) -> None:
        if self._to_release:
            dropped, self._to_release = self._to_release, {}
            await self._leases.release(dropped)

    async def end(self, grant: Grant) -> None:
        """All of its records are settled, and the store knows: its children may be read.

        Raises:
            StoreError: the lease could not be released; the shard will be taken again.
        """
        self._end(grant)
        try:
            async with asyncio.timeout(self._leases.duration):
                await self._leases.release({grant.shard: grant.fence}, ended=True)
        except (StoreError, TimeoutError) as error:
            self._bench.put(grant.shard)  # it is taken again, and perhaps again
            if isinstance(error, StoreError):
                raise
            raise TransientStoreError(f"no answer to the end of {grant.shard}") from error

    def _hand_over_soon(self, grant: Grant) -> None:
        if grant.is_held:
            self._handovers[grant] = task = self._spawn(self._hand_over(grant))
            task.add_done_callback(lambda _: self._handovers.pop(grant, None))

    async def _hand_over(self, grant: Grant) -> None:
        try:
            await self._revoke([grant])
        finally:
            is_ours = grant.state is not GrantState.CLOSED
            self._end(grant)
        if is_ours:
            with suppress(StoreError, TimeoutError):  # seen in the leases, and released then
                async with asyncio.timeout(self._leases.duration):
                    await self._leases.release({grant.shard: grant.fence})

    async def _revoke(self, grants: Sequence[Grant]) -> None:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + DRAIN_SHARE * self._leases.handover
        for grant in grants:
            grant.state = GrantState.DRAINING
            self._stopped(grant)
        for grant in grants:
            await self._withdraw(grant)
        await self._owner.revoked([grant.assignment for grant in grants], deadline=deadline)

    async def leave(self) -> None:
        """Gives all up, renewing meanwhile. Never raises."""
        self._is_leaving = True
        self._nudge.set()
        held = [grant for grant in self.grants.values() if grant.is_held]
        handovers = list(self._handovers.values())
        if held:
            await self._revoke(held)
        if handovers:
            await asyncio.wait(handovers)
        fences = self._fences(held)
        for grant in held:
            self._end(grant)
        try:
            async with asyncio.timeout(self._leases.duration):
                await self._leases.release({**self._to_release, **fences})
        except (StoreError, TimeoutError) as error:
            log.warning("leases could not be released, others will take them: %s", error)

    async def aclose(self) -> None:
        """Is no member any more; the tasks that use the leases have ended. Never raises."""
        await self._leases.aclose()

    @staticmethod
    def _fences(grants: Sequence[Grant]) -> Mapping[str, int]:
        return {
            grant.shard: grant.fence for grant in grants if grant.state is not GrantState.CLOSED
        }
