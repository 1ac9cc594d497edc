"""The connection of a range reader to a cluster."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection
from typing import Any, TypeVar

from aiokafka import TopicPartition
from aiokafka.errors import UnknownTopicOrPartitionError

from consumer_sdk.adapters.kafka.client.asking import look_up, persist
from consumer_sdk.adapters.kafka.client.cluster import Cluster
from consumer_sdk.adapters.kafka.client.faults import check_code, name_of
from consumer_sdk.adapters.kafka.client.topics import describe_topics
from consumer_sdk.adapters.kafka.ranges.options import RangeOptions
from consumer_sdk.errors import PositionOutOfRangeError

__all__ = ["Connection"]

T = TypeVar("T")


class Connection:
    """A cluster, as one asks it who is no member of any group.

    Attributes:
        cluster: for questions that are not asked again.
    """

    def __init__(self, options: RangeOptions) -> None:
        self.options = options
        topics = options.names if options.pattern is None else None
        self.cluster = Cluster(options.for_client(), topics)

    async def open(self) -> None:
        """Connects, and learns who leads what."""
        await self.cluster.open(self.options.connect_timeout)

    @property
    def calls(self) -> int:
        """Requests sent to brokers, without what setting up a connection takes."""
        return self.cluster.calls

    async def refresh(self) -> None:
        """Fresh metadata.

        Raises:
            KafkaError: no broker gave any.
        """
        await self.cluster.refresh()

    def leader(self, tp: TopicPartition) -> int:
        """The node that leads a partition.

        Raises:
            PositionOutOfRangeError: the partition is gone.
            KafkaError: there is no leader at the moment; ask again.
        """
        self.cluster.metadata.check_topic(tp.topic)
        if self.cluster.is_gone(tp):
            raise PositionOutOfRangeError(
                f"{name_of(tp)} does not exist (any more): its records are lost"
            )
        return self.cluster.leader_of(tp).node

    async def confirm_gone(self, tps: Collection[TopicPartition]) -> None:
        """Asks by name for topics that seem gone, unless metadata are asked for by name anyway.

        A list of all topics, for a pattern, leaves out what is forbidden.

        Raises:
            AdapterError: nobody can tell.
            KafkaError: one is there, or this principal may not know.
        """
        if self.options.names:
            return
        topics = await describe_topics(self.cluster, sorted({tp.topic for tp in tps}))
        for tp in tps:
            topic = topics[tp.topic]
            if topic.error and not topic.is_absent:
                check_code(topic.error, tp.topic)
            if tp.partition in topic.partitions:
                raise UnknownTopicOrPartitionError(f"{name_of(tp)} is there after all")

    async def send(self, node: int, request: Any) -> Any:
        """The node's answer."""
        return await self.cluster.send(node, request)

    async def persist(self, where: str, ask: Callable[[], Awaitable[T]]) -> T:
        """Asks until there is an answer, with fresh metadata after each failure that may pass.

        Raises:
            TransientAdapterError: there was none within ``read_timeout``.
            PositionOutOfRangeError: the partition it asks about is gone.
            AdapterError: asking again would not help.
        """
        return await persist(self, self.options.read_timeout, where, ask)

    async def look_up(
        self, tps: Collection[TopicPartition], time: int
    ) -> dict[TopicPartition, int | None]:
        """The offset that a time stands for; None where no record is that new, or all are gone.

        Args:
            time: `EARLIEST`, `LATEST`, or milliseconds since the epoch.

        Raises:
            AdapterError: as `persist`.
        """
        level, seconds = self.options.level, self.options.read_timeout
        return await look_up(self.cluster, tps, time, level=level, seconds=seconds, gone=self._gone)

    async def _gone(self, tps: Collection[TopicPartition]) -> Collection[TopicPartition]:
        found = {tp for tp in tps if self.cluster.is_gone(tp)}
        if found:
            await self.confirm_gone(found)
        return found

    async def aclose(self) -> None:
        """Disconnects. Never raises."""
        await self.cluster.aclose()
