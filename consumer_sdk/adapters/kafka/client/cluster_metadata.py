"""A cluster's metadata, kept from answer to answer: which broker leads which partition, and which are gone or in trouble.

No I/O, and no clock: ``now`` is in seconds of any clock that never goes back. Rules:

- A topic is *troubled* if the broker answered with an error for it, unless the error says that the topic does not
  exist. Its partitions stay.
- A partition counts as *gone* when no answer has named it for `ABSENCE` seconds: a new topic, or a new leader, is not known to
  all brokers at once. It stays gone while the last answer is younger than `KNOWN` seconds. After that the brokers have
  to be asked again.
- A leader with an older epoch than a known one is ignored, because the broker that answered is behind (KIP-320).
- A topic never loses partitions. If its id has changed, it is another topic, and the metadata of the old one are
  dropped.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any, NamedTuple

from aiokafka import TopicPartition
from aiokafka.errors import NotLeaderForPartitionError, UnknownTopicOrPartitionError

from consumer_sdk.adapters.kafka.client.faults import check_code, name_of
from consumer_sdk.adapters.kafka.client.protocol import NO_TOPIC_ID

__all__ = ["NO_EPOCH", "Broker", "ClusterMetadata", "Leader", "TopicMetadata", "topics_in"]

ABSENCE = 2.0
"""Seconds after which a partition that no answer names counts as gone."""
KNOWN = 20.0
"""Seconds for which it then stays gone; after that the brokers are to be asked again."""
NO_EPOCH = -1
"""The broker, before Kafka 3.0, tells none."""
WITH_IDS = 12
"""The version of an answer that has topic ids, and epochs of leaders."""
ABSENT = frozenset({3, 17})
"""Codes of a topic that there is not, or that there can not be."""


class Broker(NamedTuple):
    """Where a node listens."""

    node: int
    host: str
    port: int
    rack: str | None


class Leader(NamedTuple):
    """The node that leads a partition, -1 for none, and since which epoch; -1: this broker tells none."""

    node: int
    epoch: int


class TopicMetadata(NamedTuple):
    """What an answer says of a topic.

    Attributes:
        error: Kafka's code; 0 for none.
        topic_id: 16 bytes, or None from a broker before Kafka 3.0.
        leaders: by the numbers of the partitions.
        replicas: copies of each partition.
    """

    name: str
    error: int
    topic_id: bytes | None
    is_internal: bool
    leaders: Mapping[int, Leader]
    replicas: int


def topics_in(answer: Any) -> Iterator[TopicMetadata]:
    """The topics of an answer of any version from 1 on."""
    for entry in answer.topics or ():
        if answer.API_VERSION >= WITH_IDS:
            error, name, topic_id, is_internal, partitions, *_ = entry
            told = [(p, Leader(node, epoch), r) for _, p, node, epoch, r, *_ in partitions or ()]
        else:
            (error, name, is_internal, partitions), topic_id = entry, NO_TOPIC_ID
            told = [(p, Leader(node, NO_EPOCH), r) for _, p, node, r, *_ in partitions or ()]
        yield TopicMetadata(
            name=name,
            error=error,
            topic_id=None if topic_id == NO_TOPIC_ID else topic_id,
            is_internal=is_internal,
            leaders={number: leader for number, leader, _replicas in told},
            replicas=max((len(replicas or ()) for *_, replicas in told), default=1),
        )


class ClusterMetadata:
    """The last answers, joined.

    Attributes:
        brokers: by node.
        controller: its node.
        troubled: topics of which the last answer said nothing but an error that is not absence, and that error's code.
    """

    def __init__(self) -> None:
        self.brokers: Mapping[int, Broker] = {}
        self.controller: int | None = None
        self.troubled: Mapping[str, int] = {}
        self._topics: dict[str, TopicMetadata] = {}
        self._names: dict[bytes, str] = {}
        self._absent: frozenset[str] = frozenset()
        self._lists_all = False
        self._taken: float | None = None
        self._absent_since: dict[TopicPartition, float] = {}

    def take(self, answer: Any, now: float, *, lists_all: bool = False) -> bool:
        """Takes a broker's answer in.

        Args:
            answer: to a request for metadata, of version 1 or newer.
            lists_all: all topics were asked for: what it leaves out is absent.

        Returns:
            whether a broker, a topic, a partition or a leader is another one than before.
        """
        before = self.brokers, self.controller, self.troubled, self._topics
        self._taken, self._lists_all = now, lists_all
        self.brokers = {broker[0]: Broker(*broker[:4]) for broker in answer.brokers or ()}
        self.controller = answer.controller_id if answer.controller_id in self.brokers else None
        told = list(topics_in(answer))
        self._absent = frozenset(topic.name for topic in told if topic.error in ABSENT)
        self.troubled = {t.name: t.error for t in told if t.error and t.name not in self._absent}
        kept = {name: self._topics[name] for name in self.troubled if name in self._topics}
        self._topics = kept | {t.name: self._joined(t) for t in told if not t.error}
        self._names = {t.topic_id: name for name, t in self._topics.items() if t.topic_id}
        since = self._absent_since.items()
        self._absent_since = {tp: begin for tp, begin in since if self._is_missing(tp)}
        return before != (self.brokers, self.controller, self.troubled, self._topics)

    def _joined(self, told: TopicMetadata) -> TopicMetadata:
        """Joins an answer with what was known of the topic: a broker that is behind knows older leaders and fewer partitions."""
        known = self._topics.get(told.name)
        if known is None or told.topic_id is None or known.topic_id != told.topic_id:
            return told
        newer = {
            number: leader
            for number, leader in known.leaders.items()
            if number not in told.leaders or told.leaders[number].epoch < leader.epoch
        }
        return told._replace(leaders={**told.leaders, **newer}) if newer else told

    def add(self, broker: Broker) -> None:
        """Adds a broker that another answer has named, until the next metadata."""
        self.brokers = {broker.node: broker, **self.brokers}

    def age(self, now: float) -> float:
        """Seconds since the last answer; ``inf`` before the first."""
        return float("inf") if self._taken is None else now - self._taken

    @property
    def topics(self) -> Collection[str]:
        """Names of all topics, also of troubled ones and of Kafka's own."""
        return self._topics.keys() | self.troubled.keys()

    @property
    def internal(self) -> Collection[str]:
        """Kafka's own topics."""
        return {name for name, topic in self._topics.items() if topic.is_internal}

    def check_topic(self, topic: str) -> None:
        """Raises what the last answer said is wrong with a topic, unless it is absent.

        Raises:
            KafkaError: it may not be described, or has no leader at the moment.
        """
        check_code(self.troubled.get(topic, 0), topic)

    def partitions(self, topic: str) -> frozenset[int]:
        """Numbers of a topic's known partitions."""
        known = self._topics.get(topic)
        return frozenset() if known is None else frozenset(known.leaders)

    def leader_of(self, tp: TopicPartition) -> Leader:
        """Who leads a partition.

        Raises:
            KafkaError: it is not known, or there is none at the moment: ask for fresh metadata.
        """
        self.check_topic(tp.topic)
        leader = self.known_leader(tp)
        if leader is None:
            raise UnknownTopicOrPartitionError(name_of(tp))
        if leader.node < 0:
            raise NotLeaderForPartitionError(f"{name_of(tp)} has no leader")
        return leader

    def known_leader(self, tp: TopicPartition) -> Leader | None:
        """Who led a partition last, also of a topic in trouble; None: it is not known. Its node may be -1."""
        known = self._topics.get(tp.topic)
        return None if known is None else known.leaders.get(tp.partition)

    def is_gone(self, tp: TopicPartition, now: float) -> bool:
        """No answer has named the partition for a while, and the last one is not old.

        A topic that was not asked for is not gone.
        """
        if not self._is_missing(tp):
            return False
        since = self._absent_since.setdefault(tp, now)
        age = self.age(now)
        return age < KNOWN and now - age - since >= ABSENCE

    def _is_missing(self, tp: TopicPartition) -> bool:
        if tp.topic in self.troubled:
            return False
        known = self._topics.get(tp.topic)
        if known is not None:
            return tp.partition not in known.leaders
        return self._lists_all or tp.topic in self._absent

    def topic_id(self, topic: str) -> bytes | None:
        """16 bytes; None: the topic is not known, or the broker, before Kafka 3.0, tells none."""
        known = self._topics.get(topic)
        return None if known is None else known.topic_id

    def topic_of(self, topic_id: bytes) -> str | None:
        """The name of a topic; None: the last answer has not named this id."""
        return self._names.get(topic_id)
