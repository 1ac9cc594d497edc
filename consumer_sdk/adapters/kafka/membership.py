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

A grant goes OFFERED → STARTING → OPEN → DRAINING → CLOSED; a dropped one is followed by a new
one of the same partition.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any

from aiokafka import TopicPartition
from aiokafka.abc import ConsumerRebalanceListener

from consumer_sdk.adapters.kafka.granting import Granting
from consumer_sdk.adapters.kafka.grants import Grants
from consumer_sdk.adapters.kafka.revoking import Failures, Revoking

__all__ = ["Membership"]


class Membership(ConsumerRebalanceListener):  # type: ignore[misc]  # the client has no types
    """The client's rebalance listener.

    Args:
        consumer: the client.
    """

    def __init__(
        self,
        consumer: Any,
        grants: Grants,
        granting: Granting,
        revoking: Revoking,
        failures: Failures,
    ) -> None:
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
            self._revoking.lose(list(self._grants))

        coordinator.reset_generation = reset_and_lose

    async def revoke_all(self) -> None:
        """Ends every grant, within the budget. Whoever comes second finds nothing left."""
        async with self._lock:
            await self._granting.end()
            await self._revoking.revoke(list(self._grants))

    async def aclose(self) -> None:
        """Revokes everything; nothing is offered afterwards."""
        self._is_closed = True
        await self.revoke_all()
