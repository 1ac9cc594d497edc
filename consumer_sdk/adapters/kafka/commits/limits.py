"""Finds the limit of a commit's metadata: the broker's ``offset.metadata.max.bytes``."""

from __future__ import annotations

import logging

from consumer_sdk.adapters.kafka import client_support as _support  # noqa: F401 - is it there?

# isort: split
from aiokafka.errors import KafkaError

from consumer_sdk.adapters.kafka.client.cluster import Cluster
from consumer_sdk.adapters.kafka.client.lookups import (
    ConfigResource,
    Coordinator,
    configs_in,
    describe_configs,
)
from consumer_sdk.adapters.kafka.commits.metadata import HEAD_SIZE, MOST

__all__ = ["MetadataLimit"]

log = logging.getLogger(__name__)

NAME = "offset.metadata.max.bytes"


class MetadataLimit:
    """Starts at what a broker takes by default, and shrinks where one takes less.

    Args:
        group: whose coordinator is asked: a broker answers for itself alone.

    Attributes:
        size: UTF-16 units.
    """

    def __init__(self, cluster: Cluster, group: str) -> None:
        self._cluster = cluster
        self._coordinator = Coordinator(group)
        self._is_known = False
        self.size = MOST

    async def learn(self) -> None:
        """Asks the broker, unless it has told. A principal that may not know (ACLs) learns nothing."""
        if not self._is_known:
            await self._ask()

    async def shrink(self, refused: int) -> None:
        """Metadata of ``refused`` units was too large: asks for the limit, or halves it."""
        if refused > self.size:  # it is known by now
            return
        await self._ask()
        if self.size >= refused:  # it is not that limit, or is not told
            self._lower(refused // 2)

    async def has_room_for_head(self) -> bool:
        """Whether commits can carry a mark, so that a commit without a mark is another program's."""
        await self.learn()
        return self.size >= HEAD_SIZE

    async def _ask(self) -> None:
        try:
            node = await self._cluster.coordinator(self._coordinator)
            answer = await self._cluster.send(
                node, describe_configs(ConfigResource.BROKER, str(node), NAME)
            )
        except (KafkaError, OSError, TimeoutError):
            return
        entry = configs_in(answer).get(NAME)
        if entry is not None and entry.number is not None:
            self._is_known = True
            self._lower(entry.number)

    def _lower(self, size: int) -> None:
        if size >= self.size:
            return
        self.size = size
        log.warning(
            "the broker takes %d characters of commit metadata. Without a store, what does not fit "
            "of settled ranges, attempts and application_id is forgotten at a restart: set %s=%d at "
            "the broker, or give the consumer a store",
            *(size, NAME, MOST),
        )
