"""Which partitions a reader's options choose, of those that there are."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from consumer_sdk.adapters.kafka.client.topics import Topic, await_topics
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
        client, names = self._connection.client, self._options.names
        topics = await await_topics(client, names)
        for topic in topics.values():
            self._check(topic)
        known = {name: self._connection.cluster.partitions_for_topic(name) for name in names}
        if not all(known.values()):
            await self._connection.persist("looking for new topics", self._connection.refresh)

    def _check(self, topic: Topic) -> None:
        if topic.is_absent:
            raise ConfigurationError(
                f"topic {topic.name!r} does not exist on {', '.join(self._options.servers)}, "
                f"and reading never creates one: check the name, or create it first"
            )
        if topic.is_forbidden:
            raise AdapterError(
                f"topic {topic.name!r}: this principal may not describe it; grant it "
                f"Describe and Read (ACLs)"
            )
        absent = set((self._options.partitions or {}).get(topic.name, ())) - topic.partitions
        if absent:
            raise ConfigurationError(
                f"topic {topic.name!r} has no partition {min(absent)}: it has "
                f"{len(topic.partitions)}, from 0 up"
            )

    async def partitions(self) -> Sequence[Partition]:
        """Those that there are, in the order of topic and number.

        Raises:
            AdapterError: the broker did not answer, or refused.
        """
        await self._connection.persist("looking for new partitions", self._look)
        return [Partition(topic, str(n)) for topic, n in sorted(self._chosen())]

    async def _look(self) -> None:
        if self._connection.age >= self._options.seen_within:
            await self._connection.refresh()
        for topic in self._topics():
            self._connection.check_topic(topic)

    def _chosen(self) -> Iterator[tuple[str, int]]:
        for topic in self._topics():
            numbers = self._connection.cluster.partitions_for_topic(topic) or ()
            chosen = (self._options.partitions or {}).get(topic, numbers)
            yield from ((topic, number) for number in set(numbers) & set(chosen))

    def _topics(self) -> Sequence[str]:
        if self._options.pattern is None:
            return self._options.names
        cluster = self._connection.cluster
        topics = {*cluster.topics(), *self._connection.troubled} - cluster.internal_topics
        return [topic for topic in sorted(topics) if self._options.chooses(topic)]
