"""Looks topics up at a broker, without ever creating one."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from aiokafka.errors import KafkaError

from consumer_sdk.adapters.kafka.client.cluster_metadata import topics_in
from consumer_sdk.adapters.kafka.client.faults import translate
from consumer_sdk.adapters.kafka.client.protocol import TopicDescriptions

__all__ = [
    "Asked",
    "Topic",
    "await_topics",
    "describe_topic_ids",
    "describe_topics",
    "described",
]

UNKNOWN = 3
INVALID = 17
FORBIDDEN = 29
PROPAGATION = 1.0
"""Seconds until every broker knows a topic that was made a moment ago."""

LOOK_AGAIN = 0.05
"""Seconds between looks for a topic that was made a moment ago."""


@dataclass(frozen=True, slots=True)
class Topic:
    """One topic as a broker describes it.

    Attributes:
        error: Kafka's error code; 0 for none.
        topic_id: 16 bytes, or None from a broker before Kafka 3.0.
        partitions: their numbers.
        replicas: copies of each partition.
        is_internal: one of Kafka's own, such as ``__consumer_offsets``.
    """

    name: str
    error: int
    topic_id: bytes | None
    partitions: frozenset[int]
    replicas: int
    is_internal: bool = False

    @property
    def is_absent(self) -> bool:
        """Whether no topic of this name exists, or can exist."""
        return self.error in (UNKNOWN, INVALID)

    @property
    def is_forbidden(self) -> bool:
        """Whether this principal may not see the topic."""
        return self.error == FORBIDDEN


class Asked(Protocol):
    """Whom to ask: a `Cluster`, or a producer's client; see `producers`."""

    async def send(self, to: None, request: Any) -> Any:
        """The answer of any node.

        Raises:
            KafkaError, OSError, TimeoutError: there is none.
        """


async def describe_topics(cluster: Asked, names: Collection[str] | None) -> dict[str, Topic]:
    """The topics, by name, absent ones too; None: all that this principal may see.

    Raises:
        AdapterError: the broker did not answer, or refused.
    """
    where = f"describing {', '.join(names) if names is not None else 'all topics'}"
    return await _describe(cluster, names, (), where)


async def describe_topic_ids(cluster: Asked, ids: Collection[bytes]) -> dict[str, Topic]:
    """The topics of these ids, by name; those that no longer exist are left out.

    Raises:
        AdapterError: the broker did not answer, or refused.
    """
    found = await _describe(cluster, [], ids, f"asking for the names of {len(ids)} topics")
    return {name: topic for name, topic in found.items() if topic.error == 0}


async def _describe(
    cluster: Asked, names: Collection[str] | None, ids: Collection[bytes], where: str
) -> dict[str, Topic]:
    try:
        return described(await cluster.send(None, TopicDescriptions(names, ids)))
    except (KafkaError, OSError, TimeoutError) as error:
        raise translate(error, where) from error


async def await_topics(
    cluster: Asked, names: Sequence[str], patience: float = PROPAGATION
) -> dict[str, Topic]:
    """The topics; those that are absent may still appear within ``patience`` seconds.

    The last look begins after them, so that a broker that answers late is asked twice, too.
    """
    deadline = asyncio.get_running_loop().time() + patience
    while True:
        is_late = asyncio.get_running_loop().time() >= deadline
        topics = await describe_topics(cluster, names)
        if is_late or not any(topic.is_absent for topic in topics.values()):
            return topics
        await asyncio.sleep(LOOK_AGAIN)


def described(answer: Any) -> dict[str, Topic]:
    """The topics of an answer, by name."""
    return {
        topic.name: Topic(
            name=topic.name,
            error=topic.error,
            topic_id=topic.topic_id,
            partitions=frozenset(topic.leaders),
            replicas=topic.replicas,
            is_internal=topic.is_internal,
        )
        for topic in topics_in(answer)
        if topic.name  # an id that no topic has comes without one
    }
