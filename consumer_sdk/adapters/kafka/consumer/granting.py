"""Brings partitions from offered to open: the owner's answer, a position, the gate."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from aiokafka import TopicPartition

from consumer_sdk.adapters.assignment_book import AssignmentBook, GrantState
from consumer_sdk.adapters.grant_rounds import GrantRounds
from consumer_sdk.adapters.kafka.client.topics import describe_topics
from consumer_sdk.adapters.kafka.consumer.grants import Grant
from consumer_sdk.adapters.kafka.consumer.offsets import Offsets
from consumer_sdk.adapters.kafka.consumer.revoking import Revoking
from consumer_sdk.adapters.kafka.fetch.cursors import Cursor
from consumer_sdk.log_limits import REPEATS
from consumer_sdk.records import StartPoint

__all__ = ["Granting"]

log = logging.getLogger(__name__)


class Granting:
    """One round after another, in a task that a revoke can end.

    Args:
        consumer: the client.
        opens: called with the cursor of each grant that is opened.
        opened: called when they were.
    """

    def __init__(
        self,
        consumer: Any,
        *,
        rounds: GrantRounds[Grant],
        grants: AssignmentBook[Grant],
        offsets: Offsets,
        revoking: Revoking,
        opens: Callable[[Cursor], None],
        opened: Callable[[], None],
    ) -> None:
        self._consumer = consumer
        self._rounds = rounds
        self._grants = grants
        self._offsets = offsets
        self._revoking = revoking
        self._opens = opens
        self._opened = opened
        self._dropped: list[Grant] = []
        self._given_up: Any = None
        self.known: frozenset[TopicPartition] = frozenset()

    # -- what is to be granted ----------------------------------------------------------------

    def offer(self, tps: Iterable[TopicPartition]) -> None:
        """Gates partitions that the client now has. Waits for nothing: see `Membership`."""
        client_assignment = self._consumer._subscription.subscription.assignment
        coordinator = self._consumer._coordinator
        for tp in sorted(tps):
            self._gate(tp)
            self._grants.offer(
                Grant(
                    tp,
                    client_assignment,
                    generation=getattr(coordinator, "generation", -1),
                    member_id=getattr(coordinator, "member_id", ""),
                    discovered=tp not in self.known,
                )
            )
        self._rounds.wake()

    def drop(self, grant: Grant) -> None:
        """Stops fetching it; it is offered again in a new epoch, later each time in a row."""
        self._grants.drain([grant])
        self._dropped.append(grant)
        grant.cursor.close()
        if grant.attempt == 0:
            self._rounds.wake()
        else:
            self._rounds.wake_later()

    def give_up(self) -> None:
        """Of what the client has now, nothing is offered again; the next assignment is another one."""
        subscription = self._consumer._subscription.subscription
        self._given_up = None if subscription is None else subscription.assignment

    def _gate(self, tp: TopicPartition) -> None:
        """The client itself never fetches it."""
        self._consumer.pause(tp)
        self._consumer.seek(tp, 0)

    # -- a round ------------------------------------------------------------------------------

    async def grant_all(self) -> None:
        """Brings what there is to grant as far as it comes; see `GrantRounds`."""
        await self._renew_dropped()
        offered = await self._identify(self._grants.within(GrantState.OFFERED))
        self._offer_declined((await self._rounds.ask(offered)).declined)
        await self._open(self._grants.within(GrantState.STARTING))

    async def _renew_dropped(self) -> None:
        """The old epoch ends before the new one is offered."""
        while self._dropped:
            grant = self._dropped[0]
            if not grant.is_closed:
                await self._revoking.revoke([grant])
                self._offer_again(grant)
            self._dropped.remove(grant)

    def _offer_declined(self, declined: Sequence[Grant]) -> None:
        """One cannot be given back alone; whoever holds it may yet let go of it."""
        for grant in declined:
            self._offer_again(grant)
        if declined:
            self._rounds.wake_later()

    def _offer_again(self, grant: Grant) -> None:
        """Offers it in a new epoch, if the group still has it here."""
        # 1. It is dropped; 2. the group rebalances, and revokes all; 3. this goes on. The client calls its
        # assignment active until it has the next one, but the partition may be another member's by then.
        is_ours = grant.client_assignment is not self._given_up
        if is_ours and grant.client_assignment.active:
            self._grants.offer(grant.again())

    async def _identify(self, grants: Sequence[Grant]) -> list[Grant]:
        """Learns the topic ids; partitions of a topic that is gone are not offered."""
        if not grants:
            return []
        names = sorted({grant.tp.topic for grant in grants})
        topics = await describe_topics(self._consumer._client, names)
        present = [grant for grant in grants if not topics[grant.tp.topic].is_absent]
        for grant in present:
            grant.topic_id = topics[grant.tp.topic].topic_id
        if len(present) < len(grants):
            log.error("a topic that is consumed no longer exists: one of %s", names, extra=REPEATS)
            self._rounds.wake_later()
        return present

    async def _open(self, grants: Sequence[Grant]) -> None:
        """Seeks and opens the gates; no await after the last look at the grants."""
        has_group = self._consumer._group_id is not None
        offsets = await self._offsets.resolve(grants, has_group=has_group)
        for grant in grants:
            is_opened = grant.client_assignment.active and self._grants.open(grant)
            if is_opened and grant.start is not StartPoint.ENDED:
                self._open_gate(grant, offsets[grant])
        if grants:
            self._opened()

    def _open_gate(self, grant: Grant, offset: int) -> None:
        grant.cursor.topic_id = grant.topic_id
        grant.cursor.seek(offset)
        self._opens(grant.cursor)
        if not grant.is_paused:
            grant.cursor.resume()
