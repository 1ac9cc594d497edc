"""What a cluster's metadata say, kept from answer to answer: who leads what, what is gone, what is only troubled.

No I/O, and no clock: ``now`` is in seconds of any clock that never goes back. Rules:

- A topic of which the broker said an error is *troubled*, unless the error says that there is none. Its partitions stay.
- A partition counts as *gone* when no answer has named it for `ABSENCE` seconds: a new topic, or a new leader, is not known to
  all brokers at once. It stays gone while the last answer is younger than `KNOWN` seconds; then the brokers are to be asked again.
- A leader of an older epoch than one that was told before is not believed: the broker that told it is behind (KIP-320).
- A topic that has another id is another topic: what was known of the old one is forgotten.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, NamedTuple

from aiokafka import TopicPartition

__all__ = ["Broker", "ClusterMetadata", "Leader"]

ABSENCE = 2.0
"""Seconds after which a partition that no answer names counts as gone."""
KNOWN = 20.0
"""Seconds for which it then stays gone; after that the brokers are to be asked again."""
NO_EPOCH = -1
"""The broker, before Kafka 3.0, tells none."""


class Broker(NamedTuple):
    """Where a node listens."""

    node: int
    host: str
    port: int
    rack: str | None


class Leader(NamedTuple):
    """The node that leads a partition, and since which epoch; -1: this broker tells none."""

    node: int
    epoch: int


class ClusterMetadata:
    """The last answers, joined.

    Attributes:
        brokers: by node.
        controller: its node.
    """

    brokers: Mapping[int, Broker]
    controller: int | None

    def take(self, answer: Any, now: float) -> bool:
        """Takes a broker's answer in.

        Returns:
            whether a broker, a topic, a partition or a leader is another one than before.
        """
        raise NotImplementedError

    def age(self, now: float) -> float:
        """Seconds since the last answer; ``inf`` before the first."""
        raise NotImplementedError

    @property
    def topics(self) -> Collection[str]:
        """Those that there are, also those in trouble; Kafka's internal ones too."""
        raise NotImplementedError

    @property
    def internal(self) -> Collection[str]:
        """Kafka's own topics."""
        raise NotImplementedError

    @property
    def troubled(self) -> Mapping[str, int]:
        """Topics of which the last answer said nothing but an error that is not absence, and that error's code."""
        raise NotImplementedError

    def check_topic(self, topic: str) -> None:
        """Raises what the last answer said is wrong with a topic, unless it is absent.

        Raises:
            KafkaError: it may not be described, or has no leader at the moment.
        """
        raise NotImplementedError

    def partitions(self, topic: str) -> frozenset[int]:
        """Their numbers, as far as they are known."""
        raise NotImplementedError

    def leader_of(self, tp: TopicPartition) -> Leader:
        """Who leads a partition.

        Raises:
            KafkaError: it is not known, or there is none at the moment: ask for fresh metadata.
        """
        raise NotImplementedError

    def is_gone(self, tp: TopicPartition, now: float) -> bool:
        """No answer has named the partition for a while, and the last one is not old."""
        raise NotImplementedError

    def topic_id(self, topic: str) -> bytes | None:
        """16 bytes; None: the topic is not known, or the broker, before Kafka 3.0, tells none."""
        raise NotImplementedError

    def topic_of(self, topic_id: bytes) -> str | None:
        """The name of a topic; None: no answer has named this id."""
        raise NotImplementedError
