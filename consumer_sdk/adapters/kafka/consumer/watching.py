"""Watches the topics: partitions that appear, topics that are made again.

The group finds new partitions by itself; alone nobody does. A topic that was deleted and made
again within one refresh of the client's metadata would be read on at the old position: its
partitions are dropped instead, and granted again with the new topic's identity.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from typing import Any

from aiokafka import TopicPartition

from consumer_sdk.adapters.assignment_book import AssignmentBook
from consumer_sdk.adapters.kafka.client.topics import Topic, describe_topics
from consumer_sdk.adapters.kafka.consumer.granting import Granting
from consumer_sdk.adapters.kafka.consumer.grants import Grant
from consumer_sdk.errors import AdapterError
from consumer_sdk.log_limits import REPEATS

__all__ = ["TopicWatch"]

log = logging.getLogger(__name__)


class TopicWatch:
    """Looks whenever the client has refreshed its metadata.

    Args:
        consumer: the client.
        finds_partitions: there is no group that would.
    """

    def __init__(
        self,
        consumer: Any,
        grants: AssignmentBook[Grant],
        granting: Granting,
        topics: Sequence[str],
        *,
        finds_partitions: bool,
    ) -> None:
        self._consumer = consumer
        self._grants = grants
        self._granting = granting
        self._topics = topics
        self._finds_partitions = finds_partitions

    async def run(self) -> None:
        """Watches for ever."""
        refreshed = asyncio.Event()
        cluster = self._consumer._client.cluster

        def on_refresh(_cluster: Any) -> None:
            refreshed.set()

        cluster.add_listener(on_refresh)
        try:
            while True:
                await refreshed.wait()
                refreshed.clear()
                await self._look()
        finally:
            cluster.remove_listener(on_refresh)

    async def _look(self) -> None:
        try:
            topics = await describe_topics(self._consumer._client, self._topics)
        except AdapterError as error:
            if not self._consumer._closed:  # whose connections end with what is asked
                log.warning("the topics could not be looked at: %s", error, extra=REPEATS)
            return
        self._drop_remade(topics)
        if self._finds_partitions:
            self._add_new(topics)

    def _drop_remade(self, topics: Mapping[str, Topic]) -> None:
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

    def _add_new(self, topics: Mapping[str, Topic]) -> None:
        """Assigns the new partitions beside those that are held."""
        found = {TopicPartition(t.name, p) for t in topics.values() for p in t.partitions}
        held = set(self._consumer.assignment())
        if found <= held:
            return
        self._consumer.assign(sorted(held | found))
        client_assignment = self._consumer._subscription.subscription.assignment
        for grant in self._grants:
            grant.client_assignment = client_assignment
        self._granting.offer(found - held)
