"""One member of a group: takes shards, releases them, and renews its leases.

It has two tasks beside those of the shards. One renews the leases, whatever else waits for the
store. The other looks at the leases when they have changed, and does this member's part of what
`balance` says. A shard that another member waits for is drained in a task of its own. Only the
leases say what may be read: no member takes a child shard before all of its parents have ended in
the leases.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import math
from collections.abc import Callable, Coroutine, Iterable, Iterator, Sequence
from contextlib import suppress
from typing import Any

from consumer_sdk.abc import AssignmentOwner, Leases
from consumer_sdk.adapters.assignment_book import AssignmentBook
from consumer_sdk.adapters.grant_rounds import GrantRounds
from consumer_sdk.adapters.kinesis.consumer.grants import Grant
from consumer_sdk.errors import StoreError, TransientStoreError
from consumer_sdk.leases.balance import moves
from consumer_sdk.log_limits import REPEATS
from consumer_sdk.records import LeaseView, Moves

__all__ = ["Cooldown", "Membership"]


log = logging.getLogger(__name__)

APART = 0.25
"""Seconds between two turns: with many shards each of them takes a while, and one end follows another."""

RETRY = 0.2
"""Seconds until a store that did not answer is asked again."""

MOMENT = 0.5
"""Seconds, or a twentieth of the leases' duration if that is less, that a member of a group looks who else
is there before it takes anything: those who start together share at once, instead of taking all from each other."""

FLUSH_TOO = 1.25
"""The owner drains for four fifths of what it is given, and flushes in the rest; so a handler has all
of the time for a handover where that is three times the leases' duration at most; of a longer one
a little less, since flush and release have to end before the shard is taken."""


class Membership:
    """What this member holds.

    Args:
        is_alone: there is no group, and nobody to share with.
        make_grant: makes the grant of a shard that was taken, with its fence.
        started: called with a grant that the owner has accepted.
        stopped: called with a grant that is no longer read.
        failed: called with the error if the owner could not answer, unless the error is transient.
        spawn: starts a task that ends with the session.

    Attributes:
        grants: what is held, by shard.
        rounds: ask the owner where they start.
        held_until: see `consumer_sdk.abc.Adapter.held_until`.
    """

    def __init__(
        self,
        leases: Leases,
        owner: AssignmentOwner,
        *,
        is_alone: bool,
        make_grant: Callable[[str, int], Grant],
        started: Callable[[Grant], None],
        stopped: Callable[[Grant], None],
        failed: Callable[[Exception], None],
        spawn: Callable[[Coroutine[Any, Any, None]], asyncio.Task[None]],
    ) -> None:
        self._leases = leases
        self._moment = 0.0 if is_alone else min(MOMENT, leases.duration / 20)
        self._make_grant = make_grant
        self._started = started
        self._stopped = stopped
        self._spawn = spawn
        self._cooldown = Cooldown()
        self._to_release: dict[str, int] = {}
        # By the lease they are still ours: not to be taken before their end is told.
        self._ending: dict[str, int] = {}
        self._joined = asyncio.Event()
        self._nudge = asyncio.Event()
        self._handovers: dict[Grant, asyncio.Task[None]] = {}
        self.grants = AssignmentBook[Grant]()
        # What is not released after handover + duration is taken.
        budget = min(FLUSH_TOO * leases.handover, leases.handover + leases.duration * 3 / 4)
        self.rounds = GrantRounds(owner, self.grants, self._grant_all, failed=failed, budget=budget)
        self.held_until = math.inf

    def nudge(self) -> None:
        """Look at the leases now."""
        self._nudge.set()

    # -- living -------------------------------------------------------------------------

    async def renew(self) -> None:
        """Renews the leases again and again, and learns which are lost.

        Raises:
            StoreError: what is stored as leases cannot be used.
        """
        # The pause is counted from the request and not from its answer. Otherwise, of a lease of 10 s:
        #   1. a renewal is begun at 0 s, and answered after 5 s: the lease lasts until 10 s;
        #   2. the next one is begun 3.3 s later, at 8.3 s;
        #   3. at 10 s it has no answer yet, and the shards are taken for lost.
        # So an answer may take nearly half of the duration.
        #
        # Once more within the moment of others who have just come: they are to see that this one lives.
        pauses = itertools.chain([self._moment / 2], itertools.repeat(self._leases.duration / 3))
        time = asyncio.get_running_loop().time
        while True:
            began = time()
            try:
                self._lose(await self._leases.renew())
                self.held_until = began + self._leases.duration
                self._joined.set()
                await asyncio.sleep(max(began + next(pauses) - time(), 0.0))
            except TransientStoreError as error:
                log.warning("leases could not be renewed: %s", error, extra=REPEATS)
                await asyncio.sleep(min(RETRY, self._leases.duration / 3))

    async def run(self) -> None:
        """Takes shards and hands them over, again and again.

        Raises:
            StoreError: what is stored as leases cannot be used.
        """
        await self._joined.wait()
        await self._look_around()
        while not self.grants.is_closing:
            self._nudge.clear()
            try:
                await self._turn()
                await asyncio.sleep(APART)
                await self._rest()
            except TransientStoreError as error:
                log.warning("leases could not be looked at: %s", error, extra=REPEATS)
                await asyncio.sleep(RETRY)

    async def _look_around(self) -> None:
        """Those who come within the moment are known to live; see `Liveness`."""
        if self._moment:
            with suppress(TransientStoreError):
                await self._leases.view()
            await asyncio.sleep(self._moment)

    async def _turn(self) -> None:
        await self._release_dropped()
        view = await self._leases.view()
        todo = moves(view)
        held = {s: grant for s in todo.hand_over if (grant := self.grants.at(s)) is not None}
        begun = [shard for shard, grant in held.items() if grant.is_held]
        _log_moves(view, todo, begun)
        await self._take(todo)
        await self._leases.unwant(todo.unwant)
        await self._leases.want(todo.want)
        unknown = {s: view.leases[s].fence for s in todo.hand_over if s not in held}
        if unknown:  # a take or a release whose reply was lost
            await self._leases.release(unknown)
        for grant in held.values():
            self._hand_over_soon(grant)

    async def _rest(self) -> None:
        """Until something has changed, somebody may have died, or a dropped shard may come back."""
        pause = min(self._leases.duration / 3, self._cooldown.pause())
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
        wanted = {
            s: fence
            for s, fence in todo.take.items()
            if not (self._cooldown.has(s) or fence == self._ending.get(s))
        }
        for shard, fence in (await self._leases.take(wanted)).items():
            self._lose([shard])  # under an older fence, whose loss was not told yet
            if self.grants.offer(self._make_grant(shard, fence)):
                self.rounds.wake()
            else:
                self._to_release[shard] = fence

    async def _grant_all(self) -> None:
        answer = await self.rounds.ask(self.grants)
        for grant in answer.declined:
            self._give_back(grant)
        for grant in answer.started:
            self._started(grant)

    # -- giving up ----------------------------------------------------------------------

    def _lose(self, shards: Sequence[str]) -> None:
        """Somebody else may read them."""
        grants = [grant for shard in shards if (grant := self.grants.at(shard)) is not None]
        for grant in grants:
            log.warning("%s is not held any more", grant.assignment.partition)
        self._end(grants)

    def _end(self, grants: Sequence[Grant]) -> None:
        """Nothing of them is fetched, and their trackers take no more."""
        self.rounds.lose(grants)
        for grant in grants:
            self._stopped(grant)
        self._nudge.set()

    def drop(self, grant: Grant) -> None:
        """Its epoch is over."""
        self._end([grant])
        self._give_back(grant)

    def _give_back(self, grant: Grant) -> None:
        """The shard is taken again after a while, by whoever should have it."""
        self._cooldown.add(grant.shard)
        self._to_release[grant.shard] = grant.fence
        self._nudge.set()

    async def _release_dropped(self) -> None:
        if self._to_release:
            dropped, self._to_release = self._to_release, {}
            await self._leases.release(dropped)

    async def end(self, grants: Sequence[Grant]) -> None:
        """Releases shards as ended: all of their records are settled in the store, so their children may be read.

        Raises:
            StoreError: the leases could not be released; the shards will be taken again.
        """
        fences = {grant.shard: grant.fence for grant in grants}
        self._ending |= fences
        self._end(grants)
        try:
            async with asyncio.timeout(self._leases.duration):
                await self._leases.release(fences, ended=True)
        except (StoreError, TimeoutError) as error:
            for shard in fences:
                self._cooldown.add(shard)  # it is taken again, and perhaps again
            if isinstance(error, StoreError):
                raise
            raise TransientStoreError(f"no answer to the ends of {len(fences)} shards") from error
        finally:
            for shard in fences:
                self._ending.pop(shard, None)

    def _hand_over_soon(self, grant: Grant) -> None:
        if grant.is_held:
            self._handovers[grant] = task = self._spawn(self._hand_over(grant))
            task.add_done_callback(lambda _: self._handovers.pop(grant, None))

    async def _hand_over(self, grant: Grant) -> None:
        if await self._revoke([grant]):
            with suppress(StoreError, TimeoutError):  # seen in the leases, and released then
                async with asyncio.timeout(self._leases.duration):
                    await self._leases.release({grant.shard: grant.fence})

    async def _revoke(self, grants: Sequence[Grant]) -> dict[str, int]:
        """Returns the fences of those that were not lost meanwhile."""
        for grant in self.grants.drain(grants):
            self._stopped(grant)
        released = await self.rounds.revoke(grants)
        self._nudge.set()
        return {grant.shard: grant.fence for grant in released}

    async def leave(self) -> None:
        """Releases all shards, and renews meanwhile. Never raises."""
        self.grants.end_offers()
        self._nudge.set()
        held = [grant for grant in self.grants if grant.is_held]
        handovers = list(self._handovers.values())
        fences = await self._revoke(held) if held else {}
        if handovers:
            await asyncio.wait(handovers)
        try:
            async with asyncio.timeout(self._leases.duration):
                await self._leases.release({**self._to_release, **fences})
        except (StoreError, TimeoutError) as error:
            log.warning("leases could not be released, others will take them: %s", error)

    async def aclose(self) -> None:
        """Leaves the group, when the tasks that use the leases have ended. Never raises."""
        await self._leases.aclose()


# -- what was dropped -----------------------------------------------------------------------------

FIRST = 0.1
LONGEST = 5.0
FORGIVEN = 30.0
"""Seconds after which a drop is not taken for one more of the same trouble."""


class Cooldown:
    """How long this member leaves a dropped shard alone: longer each time that the shard is dropped again."""

    def __init__(self) -> None:
        self._until: dict[str, tuple[float, float]] = {}

    def add(self, shard: str) -> None:
        """It was dropped."""
        now = asyncio.get_running_loop().time()
        until, pause = self._until.get(shard, (-math.inf, 0.0))
        pause = min(max(pause * 2, FIRST), LONGEST) if now - until < FORGIVEN else FIRST
        self._until[shard] = now + pause, pause

    def has(self, shard: str) -> bool:
        """Whether it is too early to take the shard again."""
        until, _ = self._until.get(shard, (-math.inf, 0.0))
        return asyncio.get_running_loop().time() < until

    def pause(self) -> float:
        """Seconds until the next shard may be taken; infinite if there is none."""
        now = asyncio.get_running_loop().time()
        return min(
            (until - now for until, _ in self._until.values() if until > now), default=math.inf
        )


# -- what is logged of leases that change hands ---------------------------------------------------

NAMED = 10
"""Shards that one line names."""


def _log_moves(view: LeaseView, todo: Moves, handed_over: Iterable[str]) -> None:
    """Who gets a shard, from whom one is taken that did not hand it over, and who is missing.

    What a consumer is assigned, what was revoked and what has ended it says itself.
    """
    for member, shards in _by_member(handed_over, lambda shard: view.leases[shard].wanted_by):
        log.info("handing %s over to %s", shards, member, extra=REPEATS)
    for member, shards in _by_member(todo.take, lambda shard: view.leases[shard].owner):
        log.info("taking %s without a handover from %s", shards, member, extra=REPEATS)
    if todo.unread:
        log.warning(
            "nobody reads %s: each member has as many as its max_shards allows; start another "
            "member, or raise max_shards",
            _some(todo.unread),
            extra=REPEATS,
        )


def _by_member(
    shards: Iterable[str], member_of: Callable[[str], str | None]
) -> Iterator[tuple[str, str]]:
    """Member → its shards, as a text; those of nobody are left out."""
    found: dict[str, list[str]] = {}
    for shard in shards:
        if (member := member_of(shard)) is not None:
            found.setdefault(member, []).append(shard)
    return ((member, _some(theirs)) for member, theirs in sorted(found.items()))


def _some(shards: Sequence[str]) -> str:
    more = ", …" if len(shards) > NAMED else ""
    word = "shard" if len(shards) == 1 else "shards"
    return f"{len(shards)} {word} ({', '.join(shards[:NAMED])}{more})"
