"""The broker that keeps a group: looked up, asked, and looked up again when it is another one.

A broker answers the requests of a connection one after another, and a join is answered when all members have joined.
So what keeps the membership has a connection of its own: commits of what the member keeps go on meanwhile.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Mapping
from typing import Any

from consumer_sdk.adapters.kafka import client_support as _support  # noqa: F401 - is it there?

# isort: split
from aiokafka import OffsetAndMetadata, TopicPartition
from aiokafka import errors as kafka
from aiokafka.client import ConnectionGroup, CoordinationType
from aiokafka.errors import KafkaError

from consumer_sdk.adapters.kafka.groups import member as groups
from consumer_sdk.adapters.kafka.groups.member import Member
from consumer_sdk.adapters.kafka.groups.membership import GroupMembership, Stamp
from consumer_sdk.adapters.kafka.groups.offset_fetch import (
    FetchedOffset,
    OffsetFetch,
    offsets_from_wire,
)
from consumer_sdk.errors import TransientAdapterError

__all__ = ["Coordinator"]

log = logging.getLogger(__name__)

MEMBERSHIP = "membership"
"""The connection of joins and heartbeats, beside the client's own `ConnectionGroup`."""

NOBODY = Stamp(-1, "")
MOVED = (14, 15, 16)  # is loading, not available, not the coordinator
UNKNOWN_TOPIC = (3, 100)  # by name, by id
UNSTABLE = 88
NO_MEMBER = (22, 25, 110, 113)  # of no generation or epoch of now
ILLEGAL_GENERATION = 22
NO_OFFSET = -1

LOOKUP = 5.0
"""Seconds for the question who the coordinator is. Any broker answers it: another one is asked then."""

PATIENCE = 3.0
"""Seconds that a commit waits for the answer to a heartbeat, which may bring the member's new epoch."""


class Coordinator(GroupMembership):
    """The coordinator of one group, for one member of it.

    Args:
        client: an ``AIOKafkaClient`` that is connected before anything is asked.

    Attributes:
        member: who commits, once that is known.
    """

    def __init__(self, client: Any, group: str) -> None:
        self._client = client
        self._group = group
        self._node: int | None = None
        self._looking = asyncio.Lock()
        self._news = asyncio.Event()
        self.member: Member | None = None

    # -- asking -------------------------------------------------------------------------------

    @property
    def coordinator_id(self) -> int | None:
        return self._node

    def coordinator_moved(self) -> None:
        self._node = None

    async def _known(self) -> int:
        async with self._looking:
            if self._node is None:
                async with asyncio.timeout(LOOKUP):
                    found = await self._client.coordinator_lookup(
                        CoordinationType.GROUP, self._group
                    )
                self._node = int(found)
            return self._node

    async def send(self, request: Any) -> Any:
        return await self._send(request, ConnectionGroup.COORDINATION)

    async def ask(self, request: Any, timeout: float) -> Any:
        """The answer to what keeps the membership.

        Args:
            timeout: seconds.

        Cancellation: the connection is closed, so that no later request waits for the answer.
        """
        node = await self._known()
        try:
            async with asyncio.timeout(timeout):
                return await self._send(request, MEMBERSHIP)
        except (asyncio.CancelledError, TimeoutError):
            self.coordinator_moved()
            connection = self._client._conns.pop((node, MEMBERSHIP), None)
            if connection is not None:
                connection.close()
            raise

    async def _send(self, request: Any, connection: Any) -> Any:
        node = await self._known()
        try:
            return await self._client.send(node, request, group=connection)
        except (KafkaError, OSError, TimeoutError):
            self.coordinator_moved()
            raise

    # -- commits ------------------------------------------------------------------------------

    @property
    def stamp(self) -> Stamp:
        member = self.member
        return NOBODY if member is None else Stamp(member.epoch, member.member_id)

    def is_gone(self, code: int) -> bool:
        """Of another generation it may be for a moment; the member says when what it holds is lost."""
        return code != ILLEGAL_GENERATION

    def tell_news(self) -> None:
        """An answer was taken in."""
        news, self._news = self._news, asyncio.Event()
        news.set()

    async def renewed(self, stamp: Stamp) -> bool:
        try:
            async with asyncio.timeout(PATIENCE):
                while self.stamp == stamp:
                    await self._news.wait()
        except TimeoutError:
            return False
        return self.stamp.epoch >= 0

    async def committed(
        self, tps: Collection[TopicPartition]
    ) -> Mapping[TopicPartition, OffsetAndMetadata]:
        epoch, member_id = stamp = self.stamp
        asked = [groups.TopicPartition(*tp) for tp in tps]
        who = member_id if epoch >= 0 else None
        request = OffsetFetch(self._group, asked, member_id=who, epoch=epoch)
        answer = offsets_from_wire(await self.send(request))
        if answer.error in NO_MEMBER and await self.renewed(stamp):
            return await self.committed(tps)
        self._check(answer.error)
        found = {TopicPartition(*tp): offset for tp, offset in answer.offsets.items()}
        for offset in found.values():
            self._check(0 if offset.error in UNKNOWN_TOPIC else offset.error)
        return {tp: _committed(at) for tp, at in found.items() if at.offset != NO_OFFSET}

    def _check(self, code: int) -> None:
        if code in MOVED:
            self.coordinator_moved()
        if code in (*NO_MEMBER, UNSTABLE):
            raise TransientAdapterError(
                f"the coordinator of group {self._group!r} does not say where it stands (error {code})"
            )
        if code:
            raise kafka.for_code(code)(f"group {self._group!r}")


def _committed(found: FetchedOffset) -> OffsetAndMetadata:
    return OffsetAndMetadata(found.offset, found.metadata)
