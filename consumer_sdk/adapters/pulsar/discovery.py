"""Looks up which topic partitions there are."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

from consumer_sdk.adapters.pulsar.client.admin import Admin
from consumer_sdk.adapters.pulsar.client.calls import call
from consumer_sdk.adapters.pulsar.client.topics import (
    full_name,
    is_beside,
    partition_of,
    read_pattern,
    retry_topic,
)
from consumer_sdk.adapters.pulsar.options import PulsarOptions
from consumer_sdk.errors import ConfigurationError
from consumer_sdk.log_limits import REPEATS
from consumer_sdk.records import Partition

__all__ = ["Discovery"]

log = logging.getLogger(__name__)

NOTHING = "pattern=%r matches none of the %d topics in %s: nothing is read until one is made"


class Discovery:
    """Looks up topics and their partitions.

    Args:
        admin: the REST API; None: only the partitions of topics that are named can be looked up.
    """

    def __init__(self, client: Any, admin: Admin | None, options: PulsarOptions) -> None:
        self._client = client
        self._admin = admin
        self._options = options

    async def look(self) -> Sequence[Partition]:
        """All partitions of the topics, and of their retry topics if they are read too.

        Raises:
            ConfigurationError: a topic that was named does not exist.
            AdapterError: the broker does not answer.
        """
        topics = await self._topics()
        if self._options.retry_topic:  # the broker makes them when they are subscribed to
            names = [retry_topic(topic, self._options.subscription) for topic in topics]
            topics = [*topics, *dict.fromkeys(names)]
        return [partition for topic in topics for partition in await self.partitions(topic)]

    async def _topics(self) -> Sequence[str]:
        if self._options.pattern is None:
            names = [full_name(topic) for topic in self._options.topics]
            for name in names:
                await self._check(name)
            return names
        assert self._admin is not None  # noqa: S101 - the options have seen to it
        namespace, pattern = read_pattern(self._options.pattern)
        found = await self._admin.topics(namespace)
        # A pattern that matches a topic mostly matches its dead letters too: those would go round.
        matching = [
            name
            for name in found
            if pattern.fullmatch(name) and not is_beside(name, self._options.subscription)
        ]
        if not matching:
            log.warning(NOTHING, self._options.pattern, len(found), namespace, extra=REPEATS)
        return matching

    async def _check(self, topic: str) -> None:
        """Refuses a topic that does not exist: the broker might make one of a name that is a mistake."""
        if self._admin is not None and not await self._admin.has_topic(topic):
            raise ConfigurationError(
                f"topic {topic!r} does not exist: create it, or correct its name"
            )

    async def partitions(self, topic: str) -> Sequence[Partition]:
        """The partitions of one topic; one that is not partitioned is its own partition."""
        names = await call(
            lambda done: self._client.get_topic_partitions_async(topic, done),
            f"looking up {topic}",
        )
        return [partition_of(name) for name in names]
