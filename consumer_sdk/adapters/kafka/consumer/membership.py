"""What the group says: partitions assigned, revoked, lost.

Theory of operation. The client calls its rebalance listener inside its coordination task.
``on_partitions_assigned`` gets no heartbeats while it runs, and records flow the moment it is
entered; so it does no waiting at all: it *gates* the partitions (pause, and a dummy seek that
invalidates what is being fetched), captures generation and member id, and returns. `Granting`
asks the owner, looks up the positions and opens the gates, in the runtime's task group.
``on_partitions_revoked`` does get heartbeats, and may commit: it ends the granting, then lets
the owner drain. The client swallows what a listener raises: errors are kept and come out of
fetch. The client resets the generation when the broker no longer knows this member: that call
is the moment of loss, also in the middle of a drain.

The client does not tell when a heartbeat was answered last, and only that says whether the session
can be over: a process that was stopped learns of its loss from the next heartbeat, and must do
nothing in the name of the group before it.

What becomes of a grant: see `AssignmentBook`. A dropped one is followed by a new one of the same partition.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Iterable
from typing import Any

from aiokafka import TopicPartition
from aiokafka.abc import ConsumerRebalanceListener
from aiokafka.protocol.group import HeartbeatRequest, SyncGroupRequest

from consumer_sdk.adapters.assignment_book import AssignmentBook
from consumer_sdk.adapters.kafka.consumer.granting import Granting
from consumer_sdk.adapters.kafka.consumer.grants import Grant
from consumer_sdk.adapters.kafka.consumer.revoking import Failures, Revoking

__all__ = ["Membership"]

log = logging.getLogger(__name__)

PROOFS = (HeartbeatRequest, SyncGroupRequest)
"""Requests that begin a session anew when they are answered."""
MEMBER = (0, 27)
"""Their error codes for a member: none, and that the group rebalances."""


class Membership(ConsumerRebalanceListener):  # type: ignore[misc]  # the client has no types
    """The client's rebalance listener.

    Args:
        consumer: the client.
        session: seconds without a heartbeat after which the group may give its partitions away.

    Attributes:
        held_until: see `consumer_sdk.abc.Adapter.held_until`.
    """

    def __init__(
        self,
        consumer: Any,
        grants: AssignmentBook[Grant],
        granting: Granting,
        revoking: Revoking,
        failures: Failures,
        *,
        session: float,
    ) -> None:
        self.held_until = math.inf
        self._session = session
        self._consumer = consumer
        self._grants = grants
        self._granting = granting
        self._revoking = revoking
        self._failures = failures
        self._lock = asyncio.Lock()
        self._is_closed = False

    def on_partitions_assigned(self, assigned: Iterable[TopicPartition]) -> None:
        """Gates them; waits for nothing."""
        if self._is_closed:
            return
        try:
            self._watch_generation()
            self._granting.offer(assigned)
        except Exception as error:  # noqa: BLE001 - the client would swallow it
            self._failures.keep(error)

    async def on_partitions_revoked(self, _revoked: Iterable[TopicPartition]) -> None:
        """Lets the owner drain."""
        await self.revoke_all()

    def _watch_generation(self) -> None:
        coordinator = self._consumer._coordinator
        if "reset_generation" in vars(coordinator):
            return
        reset = coordinator.reset_generation

        def reset_and_lose() -> None:
            reset()
            self._lose_all()

        coordinator.reset_generation = reset_and_lose
        self._watch_session(coordinator)

    def _lose_all(self) -> None:
        self._granting.give_up()
        grants = list(self._grants)
        if grants:
            log.warning(
                "group %r no longer knows this member: its %d partitions are lost, and what is not "
                "committed is delivered again. Either no heartbeat came within session_timeout "
                "(the event loop was blocked, the process was stopped, or the network was away), "
                "or a drain took longer than rebalance_timeout",
                *(self._consumer._group_id, len(grants)),
            )
        self._revoking.lose(grants)

    def _watch_session(self, coordinator: Any) -> None:
        """A session begins no earlier than the request that begins it is sent."""
        send, time = coordinator._send_req, asyncio.get_running_loop().time

        async def send_and_hear(request: Any) -> Any:
            sent = time()
            response = await send(request)
            if isinstance(request, PROOFS) and response.error_code in MEMBER:
                self.held_until = sent + self._session
            return response

        coordinator._send_req = send_and_hear
        self.held_until = time() + self._session

    async def revoke_all(self) -> None:
        """Ends every grant, within the budget."""
        async with self._lock:
            self._granting.give_up()
            await self._revoking.revoke_all()

    async def aclose(self) -> None:
        """Revokes everything; nothing is offered afterwards."""
        self._is_closed = True
        await self.revoke_all()
