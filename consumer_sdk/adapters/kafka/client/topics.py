"""What a broker knows of some topics, asked without ever creating one."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from aiokafka.errors import IncompatibleBrokerVersion, KafkaError
from aiokafka.protocol.metadata import MetadataRequest

from consumer_sdk.adapters.kafka.client.faults import translate
from consumer_sdk.adapters.kafka.client.protocol import NO_TOPIC_ID, TopicDescriptions

__all__ = ["Topic", "await_topics", "describe_topics"]

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
    """

    name: str
    error: int
    topic_id: bytes | None
    partitions: frozenset[int]
    replicas: int

    @property
    def is_absent(self) -> bool:
        """There is none, or can be none, of this name."""
        return self.error in (UNKNOWN, INVALID)

    @property
    def is_forbidden(self) -> bool:
        """This principal may not see it."""
        return self.error == FORBIDDEN


async def describe_topics(client: Any, names: Sequence[str]) -> dict[str, Topic]:
    """The topics, by name, absent ones too.

    Args:
        client: an ``AIOKafkaClient`` that is connected.

    Raises:
        AdapterError: the broker did not answer, or refused.
    """
    node = client.get_random_node()
    node = "bootstrap" if node is None else node
    try:
        try:
            found = (await client.send(node, TopicDescriptions(names))).topics
        except (NotImplementedError, IncompatibleBrokerVersion):  # a broker before Kafka 3.0
            found = await _describe_without_ids(client, node, names)
    except (KafkaError, OSError, TimeoutError) as error:
        raise translate(error, f"describing {', '.join(names)}") from error
    return {entry[1]: _topic(entry) for entry in found}


async def await_topics(
    client: Any, names: Sequence[str], patience: float = PROPAGATION
) -> dict[str, Topic]:
    """The topics; those that are absent may still appear within ``patience`` seconds.

    The last look begins after them, so that a broker that answers late is asked twice, too.
    """
    deadline = asyncio.get_running_loop().time() + patience
    while True:
        is_late = asyncio.get_running_loop().time() >= deadline
        topics = await describe_topics(client, names)
        if is_late or not any(topic.is_absent for topic in topics.values()):
            return topics
        await asyncio.sleep(LOOK_AGAIN)


async def _describe_without_ids(client: Any, node: Any, names: Sequence[str]) -> list[Any]:
    request = MetadataRequest(list(names), allow_auto_topic_creation=False)
    answer = (await client.send(node, request)).topics
    return [(code, name, NO_TOPIC_ID, *rest) for code, name, *rest in answer]


def _topic(entry: Any) -> Topic:
    code, name, topic_id, _is_internal, partitions, *_ = entry
    return Topic(
        name=name,
        error=code,
        topic_id=None if topic_id == NO_TOPIC_ID else topic_id,
        partitions=frozenset(partition[1] for partition in partitions),
        # Metadata v12 has the leader's epoch before the replicas.
        replicas=max((len(_replicas(partition)) for partition in partitions), default=1),
    )


def _replicas(partition: Sequence[Any]) -> Sequence[int]:
    found: Sequence[int] = next(field for field in partition if isinstance(field, list))
    return found
