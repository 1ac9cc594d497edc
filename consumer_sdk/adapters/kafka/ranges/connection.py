"""A connection that asks until it is answered, within a bound, and counts what it asks."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Iterable
from functools import partial
from typing import Any, TypeVar

from aiokafka import TopicPartition
from aiokafka.client import AIOKafkaClient, ConnectionGroup
from aiokafka.errors import (
    KafkaError,
    NotLeaderForPartitionError,
    UnknownTopicOrPartitionError,
    for_code,
)

from consumer_sdk.adapters.kafka.client.client import adopt, bounded, close_connections, connect
from consumer_sdk.adapters.kafka.client.faults import translate
from consumer_sdk.adapters.kafka.client.topics import INVALID, UNKNOWN, describe_topics
from consumer_sdk.adapters.kafka.ranges.options import RangeOptions
from consumer_sdk.adapters.opening import keep_trying
from consumer_sdk.errors import PositionOutOfRangeError, TransientAdapterError

__all__ = ["Connection", "check_code", "names_of"]

log = logging.getLogger(__name__)

T = TypeVar("T")

BACKOFF = 0.05
"""Seconds between two tries."""
ABSENCE = 2.0
"""Seconds after which a topic that no broker knows counts as gone: a new one, or a new leader,
is not known to all of them at once."""
KNOWN = 20.0
"""Seconds for which it then stays gone; after that the brokers are asked again."""
STALE = frozenset({3, 5, 6, 9, 56, 74, 75, 78})
"""Codes that ask for fresh metadata: another leader, or none for a moment."""


class Connection:
    """An ``AIOKafkaClient`` without a group.

    Attributes:
        calls: requests sent to brokers, without what setting up a connection takes.
    """

    def __init__(self, options: RangeOptions) -> None:
        self.options = options
        self.calls = 0
        self._refreshed = 0.0
        self._absent_since: dict[TopicPartition, float] = {}
        self._client: Any = AIOKafkaClient(**options.for_client())
        adopt(self._client)
        self._update = self._client._metadata_update
        self._client._metadata_update = self._counted_update
        self._troubles: dict[str, int] = {}
        self._take_in = self.cluster.update_metadata
        self.cluster.update_metadata = self._noted_update

    async def open(self) -> None:
        """Connects, and learns who leads what."""
        await keep_trying(partial(connect, self._client), self.options.connect_timeout)
        self._client._topics = set(self.options.names)
        await self.persist("reading the cluster's metadata", self.refresh)

    @property
    def client(self) -> Any:
        """For requests that are counted by whoever sends them."""
        return self._client

    @property
    def cluster(self) -> Any:
        """What the last metadata said."""
        return self._client.cluster

    @property
    def age(self) -> float:
        """Seconds since the metadata were last asked for."""
        return asyncio.get_running_loop().time() - self._refreshed

    async def _counted_update(self, cluster: Any, topics: Any) -> bool:
        self.calls += 1
        done: bool = await self._update(cluster, topics)
        return done

    def _noted_update(self, metadata: Any) -> None:
        """The client forgets topics whose metadata are an error: they would pass for gone."""
        self._troubles = {
            topic: code for code, topic, *_ in metadata.topics if code not in (0, UNKNOWN, INVALID)
        }
        self._take_in(metadata)

    @property
    def troubled(self) -> Collection[str]:
        """Topics of which the last metadata said nothing but an error that is not absence."""
        return self._troubles.keys()

    def check_topic(self, name: str) -> None:
        """Raises what the last metadata said is wrong with a topic, unless it is absent.

        Raises:
            KafkaError: it may not be described, or has no leader at the moment.
        """
        if name in self._troubles:
            check_code(self._troubles[name], name)

    async def refresh(self) -> None:
        """Fresh metadata.

        Raises:
            TransientAdapterError: no broker gave any.
        """
        if not await self._client.force_metadata_update():
            why = self._client.why_away()
            raise TransientAdapterError(
                "no broker told the cluster's metadata" + (f": {why}" if why else "")
            )
        self._refreshed = asyncio.get_running_loop().time()

    def leader(self, tp: TopicPartition) -> int:
        """The node that leads a partition.

        Raises:
            PositionOutOfRangeError: the partition is gone.
            KafkaError: there is no leader at the moment; ask again.
        """
        self.check_topic(tp.topic)
        if self.is_gone(tp):
            raise PositionOutOfRangeError(
                f"{_name(tp)} does not exist (any more): its records are lost"
            )
        leader = self.cluster.leader_for_partition(tp)
        if leader is None:
            raise UnknownTopicOrPartitionError(_name(tp))
        if leader < 0:
            raise NotLeaderForPartitionError(f"{_name(tp)} has no leader")
        return int(leader)

    def is_gone(self, tp: TopicPartition) -> bool:
        """No metadata have named it for a while, and the last ones are not old."""
        is_known = self.cluster.leader_for_partition(tp) is not None
        if is_known or tp.topic in self._troubles:
            self._absent_since.pop(tp, None)
            return False
        now = asyncio.get_running_loop().time()
        since = self._absent_since.setdefault(tp, now)
        return now - since >= ABSENCE and self.age < KNOWN

    async def confirm_gone(self, tps: Collection[TopicPartition]) -> None:
        """Asks by name for topics that seem gone, unless metadata are asked for by name anyway.

        A list of all topics, for a pattern, leaves out what is forbidden.

        Raises:
            KafkaError: one is there, or nobody can tell, or this principal may not know.
            AdapterError: the broker did not answer, or refused.
        """
        if self.options.names:
            return
        self.calls += 1
        topics = await describe_topics(self._client, sorted({tp.topic for tp in tps}))
        for tp in tps:
            topic = topics[tp.topic]
            if topic.error and not topic.is_absent:
                check_code(topic.error, tp.topic)
            if tp.partition in topic.partitions:
                raise UnknownTopicOrPartitionError(f"{_name(tp)} is there after all")

    async def send(
        self, node: int, request: Any, group: ConnectionGroup = ConnectionGroup.DEFAULT
    ) -> Any:
        """The node's answer."""
        self.calls += 1
        return await self._client.send(node, request, group=group)

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
        except TransientAdapterError as unknown:
            log.debug("%s", unknown)

    async def aclose(self) -> None:
        """Disconnects. Never raises."""
        await bounded(self._client.close(), "closing the connections")
        close_connections(self._client)


def check_code(code: int, of: TopicPartition | str) -> None:
    """Raises the client's error for a code; one that may pass is marked as such."""
    name = of if isinstance(of, str) else _name(of)
    if code in STALE:
        error = for_code(code)
        if not error.retriable:
            raise NotLeaderForPartitionError(f"{error.__name__}: {name}")
        raise error(name)
    if code:
        raise for_code(code)(name)


def _name(tp: TopicPartition) -> str:
    return f"{tp.topic}[{tp.partition}]"


def names_of(tps: Iterable[TopicPartition], most: int = 8) -> str:
    """For messages: the partitions, but not hundreds."""
    names = sorted(map(_name, tps))
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more
