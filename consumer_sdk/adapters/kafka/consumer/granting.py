"""Brings partitions from offered to open: the owner's answer, a position, the gate."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from aiokafka import TopicPartition

from consumer_sdk.abc import AssignmentOwner
from consumer_sdk.adapters.kafka.client.topics import describe_topics
from consumer_sdk.adapters.kafka.consumer.grants import Grant, Grants, GrantState
from consumer_sdk.adapters.kafka.consumer.offsets import Offsets
from consumer_sdk.adapters.kafka.consumer.revoking import Failures, Revoking
from consumer_sdk.errors import FencedError, TransientAdapterError, TransientStoreError
from consumer_sdk.log_limits import REPEATS
from consumer_sdk.records import StartPoint

__all__ = ["Granting"]

log = logging.getLogger(__name__)

FIRST_BACKOFF = 0.2
LONGEST_BACKOFF = 10.0
TRANSIENT = (TransientAdapterError, TransientStoreError, FencedError)


class Granting:
    """One conversation with the owner at a time, in a task that a revoke can end.

    Args:
        consumer: the client.
        opened: called when a gate was opened.
    """

    def __init__(
        self,
        owner: AssignmentOwner,
        consumer: Any,
        *,
        grants: Grants,
        offsets: Offsets,
        revoking: Revoking,
        failures: Failures,
        opened: Callable[[], None],
    ) -> None:
        self._owner = owner
        self._consumer = consumer
        self._grants = grants
        self._offsets = offsets
        self._revoking = revoking
        self._failures = failures
        self._opened = opened
        self._work = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._dropped: list[Grant] = []
        self._backoff = FIRST_BACKOFF
        self.known: frozenset[TopicPartition] = frozenset()

    # -- what is to be granted ----------------------------------------------------------------

    def offer(self, tps: Iterable[TopicPartition]) -> None:
        """Gates partitions that the client now has. Waits for nothing: see `Membership`."""
        client_assignment = self._consumer._subscription.subscription.assignment
        coordinator = self._consumer._coordinator
        for tp in sorted(tps):
            self._gate(tp)
            self._grants.add(
                Grant(
                    tp,
                    client_assignment,
                    generation=getattr(coordinator, "generation", -1),
                    member_id=getattr(coordinator, "member_id", ""),
                    discovered=tp not in self.known,
                )
            )
        self._work.set()

    def drop(self, grant: Grant) -> None:
        """Stops fetching it; it is offered again in a new epoch, later each time in a row."""
        grant.state = GrantState.DRAINING
        self._dropped.append(grant)
        if grant.client_assignment.active:
            self._gate(grant.tp)
        if grant.attempt == 0:
            self._work.set()
        else:
            self._try_later()

    def _gate(self, tp: TopicPartition) -> None:
        """The seek makes the client throw away what it fetched, or is fetching, of it."""
        self._consumer.pause(tp)
        self._consumer.seek(tp, 0)

    def _try_later(self) -> None:
        asyncio.get_running_loop().call_later(self._backoff, self._work.set)
        self._backoff = min(self._backoff * 2, LONGEST_BACKOFF)

    # -- the conversation ---------------------------------------------------------------------

    async def run(self) -> None:
        """Grants what is there to grant, for ever; a failure is tried again after a back-off."""
        while True:
            await self._work.wait()
            self._work.clear()
            self._task = asyncio.create_task(self._grant_all(), name="kafka: granting")
            try:
                await asyncio.wait({self._task})
            finally:
                await self.end()

    async def end(self) -> None:
        """Cancels the conversation and waits until it has ended."""
        task, self._task = self._task, None
        if task is None:
            return
        task.cancel()
        await asyncio.wait({task}, timeout=self._revoking.budget)
        if task.done() and not task.cancelled() and (error := task.exception()):
            self._failed(error)

    def _failed(self, error: BaseException) -> None:
        if isinstance(error, TRANSIENT):
            log.warning("partitions are not granted yet, trying again: %s", error, extra=REPEATS)
        else:
            self._failures.keep(error)
        self._try_later()

    async def _grant_all(self) -> None:
        await self._renew_dropped()
        await self._ask(self._grants.within(GrantState.OFFERED))
        await self._open(self._grants.within(GrantState.STARTING))

    async def _renew_dropped(self) -> None:
        """The old epoch ends before the new one is offered."""
        while self._dropped:
            grant = self._dropped[0]
            if not grant.is_closed:
                await self._revoking.revoke([grant])
                if grant.client_assignment.active:
                    self._grants.add(grant.again())
            self._dropped.remove(grant)

    async def _ask(self, grants: Sequence[Grant]) -> None:
        """Lets the owner decide where each starts."""
        present = await self._identify(grants)
        if not present:
            return
        starts = await self._owner.assigned([grant.assignment for grant in present])
        # Lost while the owner was asked: it has just begun to hold what is gone.
        self._revoking.lose([grant for grant in present if grant.is_closed])
        for grant in present:
            if grant.state is not GrantState.OFFERED:
                continue  # lost, or dropped
            if grant.assignment in starts:
                grant.start = starts[grant.assignment]
                grant.state = GrantState.STARTING
            else:
                # It cannot be given back alone; whoever holds it may yet let go of it.
                self._grants.add(grant.again())
                self._try_later()

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
            self._try_later()
        return present

    async def _open(self, grants: Sequence[Grant]) -> None:
        """Seeks and opens the gates; no await after the last look at the grants."""
        has_group = self._consumer._group_id is not None
        offsets = await self._offsets.resolve(grants, has_group=has_group)
        for grant in grants:
            if grant.state is GrantState.STARTING and grant.client_assignment.active:
                grant.state = GrantState.OPEN
                if grant.start is not StartPoint.ENDED:
                    self._open_gate(grant, offsets[grant])
        if grants:
            self._backoff = FIRST_BACKOFF
            self._opened()

    def _open_gate(self, grant: Grant, offset: int) -> None:
        self._consumer.seek(grant.tp, offset)
        if not grant.is_paused:
            grant.cursor.resume()
