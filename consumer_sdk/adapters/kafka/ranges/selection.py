"""Which partitions a reader's options choose, of those that there are."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence

from consumer_sdk.adapters.kafka.client.topics import FORBIDDEN, LOOK_AGAIN, PROPAGATION
from consumer_sdk.adapters.kafka.ranges.connection import Connection
from consumer_sdk.errors import AdapterError, ConfigurationError
from consumer_sdk.records import Partition

__all__ = ["Selection"]


class Selection:
    """The topics, or the pattern, or the partitions that were asked for."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._options = connection.options

    async def check(self) -> None:
        """Sees that the topics that are named exist, where they have to.

        Raises:
            ConfigurationError: one does not, or has no such partition.
            AdapterError: the broker did not answer, or refused.
        """
        if not self._options.names or not self._options.require_topics:
            return
        await self._await_topics()
        for name in self._options.names:
            self._check(name)

    async def _await_topics(self) -> None:
        """Those that are absent may still appear: the last look begins when they should have."""
        metadata, now = self._connection.cluster.metadata, asyncio.get_running_loop().time
        deadline = now() + PROPAGATION
        is_late = False
        while not (is_late or set(self._options.names) <= set(metadata.topics)):
            await asyncio.sleep(LOOK_AGAIN)
            is_late = now() >= deadline
            await self._connection.persist("looking for new topics", self._connection.refresh)

    def _check(self, name: str) -> None:
        metadata = self._connection.cluster.metadata
        if name not in metadata.topics:
            raise ConfigurationError(
                f"topic {name!r} does not exist on {', '.join(self._options.servers)}, "
                f"and reading never creates one: check the name, or create it first"
            )
        if metadata.troubled.get(name) == FORBIDDEN:
            raise AdapterError(
                f"topic {name!r}: this principal may not describe it; grant it "
                f"Describe and Read (ACLs)"
            )
        known = metadata.partitions(name)
        absent = set((self._options.partitions or {}).get(name, ())) - known
        if absent and name not in metadata.troubled:
            raise ConfigurationError(
                f"topic {name!r} has no partition {min(absent)}: it has {len(known)}, from 0 up"
            )

    async def partitions(self) -> Sequence[Partition]:
        """Those that there are, in the order of topic and number.

        Raises:
            AdapterError: the broker did not answer, or refused.
        """
        await self._connection.persist("looking for new partitions", self._look)
        return [Partition(topic, str(n)) for topic, n in sorted(self._chosen())]

    async def _look(self) -> None:
        if self._connection.cluster.age >= self._options.seen_within:
            await self._connection.refresh()
        for topic in self._topics():
            self._connection.cluster.metadata.check_topic(topic)

    def _chosen(self) -> Iterator[tuple[str, int]]:
        for topic in self._topics():
            numbers = self._connection.cluster.metadata.partitions(topic)
            chosen = (self._options.partitions or {}).get(topic, numbers)
            yield from ((topic, number) for number in numbers & set(chosen))

    def _topics(self) -> Sequence[str]:
        if self._options.pattern is None:
            return self._options.names
        metadata = self._connection.cluster.metadata
        topics = set(metadata.topics) - set(metadata.internal)
        return [topic for topic in sorted(topics) if self._options.chooses(topic)]
