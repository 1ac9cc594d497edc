"""Grants partitions to their owner, and revokes them.

`Granting` goes from the offer over the owner's answer and a position to the open gate. `Revoking` goes back, with a
drain or at once.
`Holdings` applies what the group assigns and revokes.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Coroutine, Iterable, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Any

from aiokafka import TopicPartition

from consumer_sdk.adapters.assignment_book import AssignmentBook, GrantState
from consumer_sdk.adapters.grant_rounds import GrantRounds
from consumer_sdk.adapters.kafka.client.cluster import Cluster
from consumer_sdk.adapters.kafka.client.topics import describe_topics
from consumer_sdk.adapters.kafka.consumer.grants import Grant
from consumer_sdk.adapters.kafka.consumer.offsets import Offsets
from consumer_sdk.adapters.kafka.fetch.cursor import Cursor
from consumer_sdk.log_limits import REPEATS
from consumer_sdk.records import StartPoint

__all__ = ["Failures", "Granting", "Holdings", "Revoking", "Taken"]

log = logging.getLogger(__name__)

OVERRUN = 0.5
"""Seconds past its deadline after which a revoke is no longer waited for."""


class Failures:
    """Keeps errors of background tasks until fetch raises them.

    Args:
        wake: called when there is one.
    """

    def __init__(self, wake: Callable[[], None]) -> None:
        self._wake = wake
        self._error: BaseException | None = None

    def keep(self, error: BaseException) -> None:
        """Keeps the first error until it is raised."""
        log.error("%r", error, exc_info=error)
        if self._error is None:
            self._error = error
        self._wake()

    def raise_kept(self) -> None:
        """Raises what was kept, once."""
        error, self._error = self._error, None
        if error is not None:
            raise error


class Revoking:
    """Takes partitions from their owner, whose errors and delays do not harm the membership."""

    def __init__(
        self, rounds: GrantRounds[Grant], grants: AssignmentBook[Grant], failures: Failures
    ) -> None:
        self._rounds = rounds
        self._grants = grants
        self._failures = failures

    async def revoke_all(self) -> None:
        """Ends the granting, and revokes all partitions; a second call finds none."""
        await self._rounds.end()
        await self.revoke(list(self._grants))

    async def revoke_some(self, grants: Sequence[Grant], *, ends_round: bool) -> None:
        """Revokes some partitions; the others are fetched and handled meanwhile.

        Args:
            ends_round: the granting may be revoking one of them itself, and is begun anew.
        """
        if ends_round:
            await self._rounds.end()
            self._rounds.wake()
        await self.revoke([grant for grant in grants if not grant.is_closed])

    async def revoke(self, grants: Sequence[Grant]) -> None:
        """Lets the owner drain and flush, then closes the grants: their commits are refused.

        Bounded: an owner that overruns has lost them.
        """
        if grants and not await self._contain(self._rounds.revoke(grants)):
            names = [str(grant.assignment.partition) for grant in grants]
            log.error("the drain did not end in time: %s", names)
            self.lose(grants)

    def lose(self, grants: Sequence[Grant]) -> None:
        """Tells the owner that partitions are lost, whatever it does with them now."""
        try:
            self._rounds.lose(grants)
        except Exception as error:  # noqa: BLE001 - the client would swallow it
            self._failures.keep(error)

    async def _contain(self, work: Coroutine[Any, Any, object]) -> bool:
        """Runs the owner's code in a task of its own; False when it overran.

        Nothing that it does, not even a CancelledError, ends the client's coordination task.
        """
        task = asyncio.ensure_future(work)
        done, _pending = await asyncio.wait({task}, timeout=self._rounds.budget + OVERRUN)
        if not done:
            task.cancel()
            return False
        if not task.cancelled() and (error := task.exception()):
            self._failures.keep(error)
        return True


class Granting:
    """One round after another, in a task that a revoke can end.

    Args:
        cluster: describes topics.
        has_group: the group knows where the partitions stand.
        opens: called with the cursor of each grant that is opened.
        opened: called when they were.

    Attributes:
        known: partitions that there were when all began.
    """

    def __init__(
        self,
        cluster: Cluster,
        *,
        rounds: GrantRounds[Grant],
        grants: AssignmentBook[Grant],
        offsets: Offsets,
        revoking: Revoking,
        has_group: bool,
        opens: Callable[[Cursor], None],
        opened: Callable[[], None],
    ) -> None:
        self._cluster = cluster
        self._rounds = rounds
        self._grants = grants
        self._offsets = offsets
        self._revoking = revoking
        self._has_group = has_group
        self._opens = opens
        self._opened = opened
        self._tenures: dict[TopicPartition, object] = {}
        self._dropped: list[Grant] = []
        self.known: frozenset[TopicPartition] = frozenset()

    # -- what is to be granted ----------------------------------------------------------------

    def offer(self, tps: Iterable[TopicPartition]) -> None:
        """Offers partitions that were assigned. Waits for nothing."""
        for tp in sorted(tps):
            tenure = self._tenures[tp] = object()
            self._grants.offer(Grant(tp, tenure, discovered=tp not in self.known))
        self._rounds.wake()

    def give_up(self, tps: Iterable[TopicPartition]) -> list[Grant]:
        """Stops offering partitions that are to go. Returns the grants that are held of them, also draining ones."""
        gone = list(tps)
        for tp in gone:
            self._tenures.pop(tp, None)
        return [grant for tp in gone if (grant := self._grants.at(tp)) is not None]

    @property
    def tps(self) -> frozenset[TopicPartition]:
        """The partitions that were assigned and not given up."""
        return frozenset(self._tenures)

    def drop(self, grant: Grant) -> None:
        """Stops fetching it; it is offered again in a new epoch, later each time in a row."""
        self._grants.drain([grant])
        self._dropped.append(grant)
        grant.cursor.close()
        if grant.attempt == 0:
            self._rounds.wake()
        else:
            self._rounds.wake_later()

    # -- a round ------------------------------------------------------------------------------

    async def grant_all(self) -> None:
        """Does one round of granting; see `GrantRounds`."""
        await self._renew_dropped()
        offered = await self._identify(self._grants.within(GrantState.OFFERED))
        self._offer_declined((await self._rounds.ask(offered)).declined)
        await self._open(self._grants.within(GrantState.STARTING))

    async def _renew_dropped(self) -> None:
        """Ends the old epochs of dropped partitions, and then offers new ones."""
        while self._dropped:
            grant = self._dropped[0]
            if not grant.is_closed and self._is_ours(grant):
                await self._revoking.revoke([grant])
                self._offer_again(grant)
            self._dropped.remove(grant)

    def _offer_declined(self, declined: Sequence[Grant]) -> None:
        """Offers partitions again that the owner declined: a member cannot give back a single partition."""
        for grant in declined:
            self._offer_again(grant)
        if declined:
            self._rounds.wake_later()

    def _offer_again(self, grant: Grant) -> None:
        """Offers it in a new epoch, if the group still has it here."""
        # 1. It is dropped; 2. the group revokes it; 3. this goes on: the partition may be another member's by
        # then. Or it has come back, and is granted already.
        if self._is_ours(grant):
            self._grants.offer(grant.again())

    def _is_ours(self, grant: Grant) -> bool:
        """Whether the partition is still that of the same assignment."""
        return self._tenures.get(grant.tp) is grant.tenure

    def is_renewing(self, grants: Iterable[Grant]) -> bool:
        """Whether one of them was dropped: a round may be ending its old epoch now."""
        return not set(self._dropped).isdisjoint(grants)

    async def _identify(self, grants: Sequence[Grant]) -> list[Grant]:
        """Learns the topic ids; partitions of a topic that is gone are not offered."""
        if not grants:
            return []
        names = sorted({grant.tp.topic for grant in grants})
        topics = await describe_topics(self._cluster, names)
        present = [grant for grant in grants if not topics[grant.tp.topic].is_absent]
        for grant in present:
            grant.topic_id = topics[grant.tp.topic].topic_id
        if len(present) < len(grants):
            log.error("a topic that is consumed no longer exists: one of %s", names, extra=REPEATS)
            self._rounds.wake_later()
        return present

    async def _open(self, grants: Sequence[Grant]) -> None:
        """Seeks and opens the gates; no await after the last look at the grants."""
        offsets = await self._offsets.resolve(grants, has_group=self._has_group)
        for grant in grants:
            is_opened = self._is_ours(grant) and self._grants.open(grant)
            if is_opened and grant.start is not StartPoint.ENDED:
                self._open_gate(grant, offsets[grant])
        if grants:
            self._opened()

    def _open_gate(self, grant: Grant, offset: int) -> None:
        grant.cursor.topic_id = grant.topic_id
        grant.seek(offset)
        self._opens(grant.cursor)
        if not grant.is_paused:
            grant.cursor.resume()


# -- what the group assigns and takes back ---------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Taken:
    """What is to be drained.

    Attributes:
        ends_round: the granting may be busy with one of them.
    """

    grants: Sequence[Grant]
    ends_round: bool


class Holdings:
    """The partitions that the group assigns. They come and go one by one; those that stay are not touched.

    Args:
        unread: topics that the group may assign, and that are held without being granted.
    """

    def __init__(
        self,
        grants: AssignmentBook[Grant],
        granting: Granting,
        revoking: Revoking,
        failures: Failures,
        *,
        unread: AbstractSet[str] = frozenset(),
    ) -> None:
        self._grants = grants
        self._granting = granting
        self._revoking = revoking
        self._failures = failures
        self._unread = unread

    @property
    def tps(self) -> frozenset[TopicPartition]:
        """The partitions that were assigned and not given up."""
        return self._granting.tps

    def assign(self, tps: Collection[tuple[str, int]]) -> None:
        """Takes partitions that the group assigns. Waits for nothing."""
        added = self._to_read(frozenset(TopicPartition(*tp) for tp in tps) - self.tps)
        if added and not self._grants.is_closing:
            self._granting.offer(added)

    def _to_read(self, tps: frozenset[TopicPartition]) -> frozenset[TopicPartition]:
        # The broker evaluates a pattern for its own topics too. Each commit is a record of one of them: who read
        # it would commit without end.
        unread = frozenset(tp for tp in tps if tp.topic in self._unread)
        if unread:
            log.info(
                "%d partitions of Kafka's own topics match the pattern: they are held, and not read",
                len(unread),
            )
        return tps - unread

    def take(self, tps: Collection[tuple[str, int]]) -> Taken:
        """Stops fetching partitions that are to go; their commits are still valid."""
        grants = self._give_up(tps)
        ends_round = self._granting.is_renewing(grants)
        self._grants.drain(grants)
        for grant in grants:
            grant.cursor.close()
        return Taken(grants, ends_round)

    async def drain(self, taken: Taken) -> None:
        """Lets the owner drain and flush, within the budget. Never raises."""
        try:
            await self._revoking.revoke_some(taken.grants, ends_round=taken.ends_round)
        except Exception as error:  # noqa: BLE001 - the membership goes on, and fetch raises it
            self._failures.keep(error)

    def lose(self, tps: Collection[tuple[str, int]], reason: str) -> None:
        """Drops partitions that may be another member's already."""
        grants = self._give_up(tps)
        if grants:
            log.warning(
                "%d partitions are lost, and what is not committed is delivered again: %s",
                *(len(grants), reason),
            )
        self._revoking.lose(grants)

    async def end(self) -> None:
        """Drains all partitions, and grants none any more."""
        self._grants.end_offers()
        self._give_up(self.tps)
        await self._revoking.revoke_all()

    def _give_up(self, tps: Collection[tuple[str, int]]) -> list[Grant]:
        return self._granting.give_up(TopicPartition(*tp) for tp in tps)
