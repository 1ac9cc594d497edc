"""Sends a member's requests to the coordinator of its group: for the membership, and for commits.

A broker answers the requests of a connection one after another, and a join is answered when all members have joined.
So the membership has a connection of its own, and commits of kept partitions go on during a join.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection
from typing import Any, NamedTuple

from aiokafka import TopicPartition

from consumer_sdk.adapters.kafka.client.cluster import Cluster
from consumer_sdk.adapters.kafka.client.connections import Channel
from consumer_sdk.adapters.kafka.client.lookups import (
    Coordinator,
    GroupOffset,
    GroupOffsets,
    OffsetFetch,
    group_offsets_in,
)
from consumer_sdk.adapters.kafka.groups.member import Member
from consumer_sdk.errors import TransientAdapterError

__all__ = ["GroupCoordinator", "Stamp"]

log = logging.getLogger(__name__)


class Stamp(NamedTuple):
    """What a commit says of who sends it."""

    epoch: int
    member_id: str


NOBODY = Stamp(-1, "")
UNSTABLE = 88
NO_MEMBER = frozenset({22, 25, 110, 113})
"""Of no generation or epoch of now."""

PATIENCE = 3.0
"""Seconds that a commit waits for the answer to a heartbeat, which may bring the member's new epoch."""


class GroupCoordinator:
    """The coordinator of one group, for one member of it.

    Args:
        cluster: opened before anything is asked.

    Attributes:
        member: who commits, once that is known.
    """

    def __init__(self, cluster: Cluster, group: str) -> None:
        self._cluster = cluster
        self._group = group
        self._key = Coordinator(group)
        self._news = asyncio.Event()
        self.member: Member | None = None

    # -- asking -------------------------------------------------------------------------------

    async def node(self) -> int:
        """The broker that keeps the group.

        Raises:
            KafkaError: nobody says.
        """
        return await self._cluster.coordinator(self._key)

    def moved(self) -> None:
        """An answer said that the coordinator is another one: it is looked up again."""
        self._cluster.forget(self._key)

    def check(self, code: int) -> None:
        """See `Cluster.check_coordinator`."""
        self._cluster.check_coordinator(self._key, code)

    async def send(self, request: Any) -> Any:
        """The coordinator's answer.

        Raises:
            KafkaError: there is none; the coordinator is looked up again.
        """
        return await self._cluster.send(self._key, request)

    async def ask(self, request: Any, timeout: float) -> Any:
        """The answer to what keeps the membership.

        Args:
            timeout: seconds, from when the coordinator is known.

        Raises:
            KafkaError, TimeoutError: there is none.

        Cancellation: the connection is closed, so that no later request waits for the answer.
        """
        await self.node()
        try:
            async with asyncio.timeout(timeout):
                return await self._cluster.send(self._key, request, channel=Channel.JOINS)
        except (asyncio.CancelledError, TimeoutError):
            self.moved()
            raise

    # -- commits ------------------------------------------------------------------------------

    @property
    def stamp(self) -> Stamp:
        """What a commit carries now, of whatever is held: a partition that stays is the member's in each new epoch."""
        member = self.member
        return NOBODY if member is None else Stamp(member.epoch, member.member_id)

    def tell_news(self) -> None:
        """Wakes whoever waits for a new stamp: an answer was taken in."""
        news, self._news = self._news, asyncio.Event()
        news.set()

    async def renewed(self, stamp: Stamp) -> bool:
        """Waits a moment for another stamp than this one, which was refused as an old one.

        Returns:
            whether there is one.
        """
        try:
            async with asyncio.timeout(PATIENCE):
                while self.stamp == stamp:
                    await self._news.wait()
        except TimeoutError:
            return False
        return self.stamp.epoch >= 0

    async def committed(
        self, tps: Collection[TopicPartition]
    ) -> dict[TopicPartition, GroupOffset | None]:
        """What the group has committed of these partitions; None for nothing.

        Raises:
            TransientAdapterError, KafkaError: the coordinator does not say.
        """
        epoch, member_id = stamp = self.stamp
        who = member_id if epoch >= 0 else None
        request = OffsetFetch(self._group, tps, member_id=who, epoch=epoch)
        found = group_offsets_in(await self.send(request), tps)
        if found.error in NO_MEMBER and await self.renewed(stamp):
            return await self.committed(tps)
        self._check(found)
        return dict(found.offsets)

    def _check(self, found: GroupOffsets) -> None:
        for code in (found.error, *found.errors.values()):
            self.check(code)
            if code == UNSTABLE or code in NO_MEMBER:
                raise TransientAdapterError(
                    f"the coordinator of group {self._group!r} does not say where it stands (error {code})"
                )
        found.check(self._group)
