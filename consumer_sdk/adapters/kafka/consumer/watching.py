"""Watches topics that appear, grow, disappear, or are created again.

It tells the membership; without a group it takes all partitions. If a topic was deleted and created again within one
refresh of the metadata, the consumer would go on at the old position. So its partitions are dropped, and granted again
with the new topic's identity.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import TypeAlias

from aiokafka import TopicPartition

from consumer_sdk.adapters.assignment_book import AssignmentBook
from consumer_sdk.adapters.kafka.client.cluster import Cluster
from consumer_sdk.adapters.kafka.client.topics import (
    Topic,
    await_topics,
    describe_topics,
)
from consumer_sdk.adapters.kafka.consumer.granting import Granting, Holdings
from consumer_sdk.adapters.kafka.consumer.grants import Grant
from consumer_sdk.adapters.kafka.options import KafkaOptions
from consumer_sdk.errors import AdapterError
from consumer_sdk.log_limits import REPEATS

__all__ = [
    "AloneTopics",
    "Look",
    "TopicWatch",
    "Topics",
    "await_chosen",
    "look_at_chosen",
    "partitions_of",
]

log = logging.getLogger(__name__)

Topics: TypeAlias = Mapping[str, Topic]
Look: TypeAlias = Callable[[Topics], Awaitable[None]]


async def await_chosen(cluster: Cluster, options: KafkaOptions) -> dict[str, Topic]:
    """The topics that are named, which may have been made a moment ago, or those that match.

    Raises:
        AdapterError: the broker did not answer, or refused.
    """
    if options.pattern is None:
        return await await_topics(cluster, options.topics)
    return await look_at_chosen(cluster, options)


async def look_at_chosen(cluster: Cluster, options: KafkaOptions) -> dict[str, Topic]:
    """The topics that are named, absent ones too; or those that match and are not Kafka's own."""
    if options.pattern is None:
        return await describe_topics(cluster, options.topics)
    found = await describe_topics(cluster, None)
    return {name: topic for name, topic in found.items() if options.chooses(topic)}


def partitions_of(topics: Topics) -> frozenset[TopicPartition]:
    """All partitions of these topics."""
    return frozenset(TopicPartition(t.name, p) for t in topics.values() for p in t.partitions)


class TopicWatch:
    """Looks whenever there are fresh metadata.

    Args:
        seen: told of the topics at each look.
    """

    def __init__(
        self,
        cluster: Cluster,
        grants: AssignmentBook[Grant],
        granting: Granting,
        options: KafkaOptions,
        seen: Look,
    ) -> None:
        self._cluster = cluster
        self._grants = grants
        self._granting = granting
        self._options = options
        self._seen = seen

    async def run(self) -> None:
        """Watches for ever."""
        refreshed = asyncio.Event()

        def on_refresh(_metadata: object) -> None:
            refreshed.set()

        self._cluster.add_listener(on_refresh, each=True)
        try:
            while True:
                await refreshed.wait()
                refreshed.clear()
                await self._look()
        finally:
            self._cluster.remove_listener(on_refresh)

    async def _look(self) -> None:
        try:
            topics = await self._chosen()
            self._drop_remade(topics)
            await self._seen(topics)
        except AdapterError as error:
            if not self._cluster.is_closed:  # whose connections end with what is asked
                log.warning("the topics could not be looked at: %s", error, extra=REPEATS)

    async def _chosen(self) -> Topics:
        """What the broker chooses by a pattern is known by what it assigns."""
        if self._options.is_chosen_by_broker:
            names = sorted({grant.tp.topic for grant in self._grants})
            return await describe_topics(self._cluster, names) if names else {}
        return await look_at_chosen(self._cluster, self._options)

    def _drop_remade(self, topics: Topics) -> None:
        for grant in self._grants:
            topic = topics.get(grant.tp.topic)
            found = None if topic is None or topic.error else topic.topic_id
            if found and grant.topic_id and found != grant.topic_id and grant.is_held:
                log.error(
                    "topic %r was deleted and made again: %d begins anew, or, if a store has a "
                    "checkpoint of the old one, stops with an error that says how to delete it",
                    *(grant.tp.topic, grant.tp.partition),
                )
                self._granting.drop(grant)


class AloneTopics:
    """Alone there is no group that would give partitions, or take them.

    Args:
        gone_is_left: a topic that is deleted is no longer read: a pattern has chosen it.
    """

    def __init__(self, holdings: Holdings, granting: Granting, *, gone_is_left: bool) -> None:
        self._holdings = holdings
        self._granting = granting
        self._gone_is_left = gone_is_left
        self._missed: frozenset[str] = frozenset()

    async def seen(self, topics: Topics) -> None:
        """Takes what is new, and leaves what has gone."""
        self._holdings.assign(partitions_of(topics))
        if self._gone_is_left:
            await self._leave(frozenset(tp.topic for tp in self._holdings.tps) - topics.keys())

    async def _leave(self, absent: frozenset[str]) -> None:
        """Those that two looks in a row have not found: a broker that has just started knows few topics."""
        gone, self._missed = absent & self._missed, absent
        if gone:
            log.info("topics %s are gone, and are left", ", ".join(sorted(gone)))
            tps = [tp for tp in self._holdings.tps if tp.topic in gone]
            self._granting.known -= set(tps)
            await self._holdings.drain(self._holdings.take(tps))
