"""Asks a cluster until it answers, within a bound."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection
from typing import Any, TypeVar

from aiokafka import TopicPartition
from aiokafka.errors import KafkaError, UnknownTopicOrPartitionError

from consumer_sdk.adapters.kafka.client.cluster import Cluster
from consumer_sdk.adapters.kafka.client.faults import check_code, name_of, translate
from consumer_sdk.adapters.kafka.ranges.options import RangeOptions
from consumer_sdk.errors import PositionOutOfRangeError, TransientAdapterError

__all__ = ["Connection"]

log = logging.getLogger(__name__)

T = TypeVar("T")

BACKOFF = 0.05
"""Seconds between two tries."""


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
            KafkaError: one is there, or nobody can tell, or this principal may not know.
        """
        if self.options.names:
            return
        topics = await self.cluster.describe_topics(sorted({tp.topic for tp in tps}))
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
        seconds, last = self.options.read_timeout, None
        try:
            async with asyncio.timeout(seconds):
                while True:
                    try:
                        return await self._attempt(where, ask)
                    except TransientAdapterError as error:
                        last = error
                    await self._recover(last)
        except TimeoutError as error:
            why = last or f"{where}: the broker is silent"
            raise TransientAdapterError(f"{why}; given up after {seconds:g} s") from (last or error)

    async def _attempt(self, where: str, ask: Callable[[], Awaitable[T]]) -> T:
        try:
            return await ask()
        except (KafkaError, OSError, TimeoutError) as error:
            raise translate(error, where) from error

    async def _recover(self, error: TransientAdapterError) -> None:
        log.debug("asking again: %s", error)
        await asyncio.sleep(BACKOFF)
        try:
            await self.refresh()
        except KafkaError as unknown:
            log.debug("%s", unknown)

    async def aclose(self) -> None:
        """Disconnects. Never raises."""
        await self.cluster.aclose()
