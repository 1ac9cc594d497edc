"""What a cluster's metadata say, joined from answers; no broker, no clock."""

from __future__ import annotations

from typing import Any

import pytest
from aiokafka import TopicPartition
from aiokafka.errors import (
    LeaderNotAvailableError,
    NotLeaderForPartitionError,
    TopicAuthorizationFailedError,
    UnknownTopicOrPartitionError,
)
from aiokafka.protocol.metadata import MetadataResponse_v1, MetadataResponse_v5

from consumer_sdk.adapters.kafka.client.cluster_metadata import (
    ABSENCE,
    KNOWN,
    NO_EPOCH,
    Broker,
    ClusterMetadata,
    Leader,
    TopicMetadata,
    topics_in,
)
from consumer_sdk.adapters.kafka.client.protocol import NO_TOPIC_ID, MetadataResponseV12
from tests.adapters.kafka.scripted_broker import topic

TP, OTHER = TopicPartition("t", 0), TopicPartition("t", 1)
UNKNOWN, NO_LEADER, INVALID, FORBIDDEN = 3, 5, 17, 29
NEW_ID = b"n" * 16


def answer(*topics: Any, nodes: int = 1) -> Any:
    """Metadata, as a broker of Kafka 3.0 or newer tells them."""
    brokers: list[Any] = [
        (node, f"broker-{node}", 9092, f"rack-{node}", {}) for node in range(1, nodes + 1)
    ]
    return MetadataResponseV12(0, brokers, "cluster", 1, list(topics), {})


@pytest.fixture
def metadata() -> ClusterMetadata:
    """Two partitions, led by node 1."""
    made = ClusterMetadata()
    made.take(answer(topic("t", (1, 5), (1, 5)), nodes=2), 0.0)
    return made


def test_answer_tells_who_leads_and_where_nodes_listen(metadata: ClusterMetadata) -> None:
    """With racks, epochs and topic ids."""
    assert metadata.leader_of(TP) == Leader(1, 5)
    assert metadata.brokers[2] == Broker(2, "broker-2", 9092, "rack-2")
    assert metadata.controller == 1
    assert metadata.partitions("t") == {0, 1}
    assert (metadata.topic_id("t"), metadata.topic_of(b"i" * 16)) == (b"i" * 16, "t")
    assert (metadata.age(7.0), ClusterMetadata().age(7.0)) == (7.0, float("inf"))


@pytest.mark.parametrize("kind", [MetadataResponse_v1, MetadataResponse_v5])
def test_older_brokers_tell_names_alone(kind: Any) -> None:
    """No topic ids, no epochs: the last answer counts."""
    metadata = ClusterMetadata()
    for node in (1, 2):
        rest: list[Any] = [[]] if kind is MetadataResponse_v5 else []
        topics = [(0, "t", True, [(0, 0, node, [1, 2], [1], *rest)])]
        head = [0] if kind is MetadataResponse_v5 else []
        brokers = [(1, "a", 1, None), (2, "b", 2, "r")]
        cluster = ["id"] if kind is MetadataResponse_v5 else []
        assert metadata.take(kind(*head, brokers, *cluster, 1, topics), 0.0)
        assert metadata.leader_of(TP) == Leader(node, NO_EPOCH)
    assert metadata.topic_id("t") is None
    assert metadata.internal == {"t"}


def test_lists_that_are_null_are_empty() -> None:
    """A broker may say it so."""
    metadata = ClusterMetadata()
    assert not metadata.is_gone(TP, 0.0)
    assert not metadata.take(MetadataResponseV12(0, None, "cluster", 1, None, {}), 0.0)
    assert (metadata.brokers, metadata.controller, set(metadata.topics)) == ({}, None, set())
    none: Any = (0, "t", b"i" * 16, False, None, 0, {})
    one: Any = (0, "u", NO_TOPIC_ID, True, [(0, 0, 1, 5, None, None, None, {})], 0, {})
    t, u = topics_in(answer(none, one))
    assert t == TopicMetadata("t", 0, b"i" * 16, is_internal=False, leaders={}, replicas=1)
    assert u == TopicMetadata("u", 0, None, is_internal=True, leaders={0: Leader(1, 5)}, replicas=0)
    (old,) = topics_in(MetadataResponse_v1([], 1, [(0, "t", False, None)]))
    assert (old.leaders, old.topic_id) == ({}, None)


def test_topic_has_as_many_copies_as_its_best_partition() -> None:
    """One where it has no partitions: nobody knows."""
    partitions: list[Any] = [
        (0, number, 1, 5, replicas, [], [], {})
        for number, replicas in enumerate(([1], [1, 2], [2]))
    ]
    (told,) = topics_in(answer((0, "t", b"i" * 16, False, partitions, 0, {})))
    assert told.replicas == 2


def test_node_0_leads_as_well_as_any() -> None:
    """The nodes of a cluster may be counted from there."""
    metadata = ClusterMetadata()
    metadata.take(answer(topic("t", (0, 5), (1, 5))), 0.0)
    assert metadata.leader_of(TP) == Leader(0, 5)


def test_answer_of_the_same_epoch_is_believed(metadata: ClusterMetadata) -> None:
    """It is the newest one."""
    metadata.take(answer(topic("t", (2, 5), (1, 5)), nodes=2), 1.0)
    assert metadata.leader_of(TP) == Leader(2, 5)


def test_topics_are_those_that_are_known_or_in_trouble(metadata: ClusterMetadata) -> None:
    """Each by its name; a topic may be in trouble from the beginning."""
    assert (set(metadata.topics), set(metadata.internal)) == ({"t"}, set())
    assert dict(metadata.troubled) == {}
    metadata = ClusterMetadata()
    metadata.take(answer(topic("new", error=NO_LEADER), topic("t", (1, 5))), 0.0)
    assert set(metadata.topics) == {"new", "t"}
    assert dict(metadata.troubled) == {"new": NO_LEADER}
    assert not metadata.partitions("new")


def test_partition_that_a_topic_has_not_is_gone(metadata: ClusterMetadata) -> None:
    """After two seconds, to the moment."""
    third = TopicPartition("t", 2)
    for now, is_gone in ((0.0, False), (ABSENCE - 0.5, False), (ABSENCE, True)):
        metadata.take(answer(topic("t", (1, 5), (1, 5))), now)
        assert metadata.is_gone(third, now) == is_gone
        assert not metadata.is_gone(OTHER, now)


def test_only_an_answer_that_differs_is_a_change(metadata: ClusterMetadata) -> None:
    """Of brokers, topics, partitions, leaders or troubles."""
    same = topic("t", (1, 5), (1, 5))
    assert not metadata.take(answer(same, nodes=2), 1.0)
    assert metadata.take(answer(same), 2.0)
    assert metadata.take(answer(topic("t", (1, 5), (1, 6))), 3.0)
    assert metadata.take(answer(topic("t", error=NO_LEADER)), 4.0)
    assert metadata.take(answer(), 5.0)


def test_leader_of_an_older_epoch_is_not_believed(metadata: ClusterMetadata) -> None:
    """KIP-320: the broker that tells it is behind."""
    metadata.take(answer(topic("t", (2, 6), (1, 5))), 1.0)
    metadata.take(answer(topic("t", (1, 5), (2, 6))), 2.0)
    assert (metadata.leader_of(TP), metadata.leader_of(OTHER)) == (Leader(2, 6), Leader(2, 6))


def test_broker_that_is_behind_takes_no_partition_away(metadata: ClusterMetadata) -> None:
    """A topic never has fewer."""
    metadata.take(answer(topic("t", (1, 5))), 1.0)
    assert metadata.partitions("t") == {0, 1}


def test_topic_that_was_made_again_is_another(metadata: ClusterMetadata) -> None:
    """Its epochs begin anew, and it may have fewer partitions."""
    metadata.take(answer(topic("t", (2, 0), topic_id=NEW_ID)), 1.0)
    assert metadata.leader_of(TP) == Leader(2, 0)
    assert metadata.partitions("t") == {0}
    assert metadata.topic_of(b"i" * 16) is None


def test_topic_in_trouble_is_not_gone(metadata: ClusterMetadata) -> None:
    """Its partitions stay known; what is wrong is said."""
    metadata.take(answer(topic("t", error=NO_LEADER)), 1.0)
    assert (dict(metadata.troubled), set(metadata.topics)) == ({"t": NO_LEADER}, {"t"})
    assert metadata.partitions("t") == {0, 1}
    with pytest.raises(LeaderNotAvailableError):
        metadata.leader_of(TP)
    for now in (1.0, 10.0):
        metadata.take(answer(topic("t", error=FORBIDDEN)), now)
        assert not metadata.is_gone(TP, now)
    with pytest.raises(TopicAuthorizationFailedError):
        metadata.check_topic("t")
    metadata.take(answer(topic("t", (1, 5))), 20.0)
    assert metadata.leader_of(TP) == Leader(1, 5)


def test_partition_without_a_leader_is_not_gone(metadata: ClusterMetadata) -> None:
    """There will be one."""
    metadata.take(answer(topic("t", (-1, 6), (1, 5))), 1.0)
    with pytest.raises(NotLeaderForPartitionError, match=r"t\[0\] has no leader"):
        metadata.leader_of(TP)
    assert not metadata.is_gone(TP, 10.0)


@pytest.mark.parametrize("code", [UNKNOWN, INVALID])
def test_topic_is_gone_when_answers_have_not_named_it_for_a_while(code: int) -> None:
    """A new one is not known to all brokers at once; one old answer alone says nothing."""
    metadata, absent = ClusterMetadata(), answer(topic("t", error=code))
    metadata.take(absent, 0.0)
    assert not metadata.is_gone(TP, 0.0)
    assert not metadata.is_gone(TP, ABSENCE + 1)  # no answer since
    metadata.take(absent, ABSENCE + 1)
    assert metadata.is_gone(TP, ABSENCE + 1)
    assert set(metadata.topics) == set()
    assert metadata.is_gone(TP, ABSENCE + KNOWN)
    assert not metadata.is_gone(TP, ABSENCE + 1 + KNOWN)  # ask again
    with pytest.raises(UnknownTopicOrPartitionError):
        metadata.leader_of(TP)


def test_topic_that_came_back_and_goes_again_is_waited_for_anew() -> None:
    """Also where nobody asked about it meanwhile."""
    metadata, absent = ClusterMetadata(), answer(topic("t", error=UNKNOWN))
    metadata.take(absent, 0.0)
    assert not metadata.is_gone(TP, 0.0)
    metadata.take(answer(topic("t", (1, 5))), 5.0)
    metadata.take(absent, 10.0)
    assert not metadata.is_gone(TP, 10.0)


def test_topic_that_nobody_asked_for_is_not_gone(metadata: ClusterMetadata) -> None:
    """But one that a list of all topics leaves out is."""
    other = TopicPartition("other", 0)
    for now in (0.0, 5.0):
        metadata.take(answer(topic("t", (1, 5))), now)
        assert not metadata.is_gone(other, now)
    for now in (10.0, 15.0):
        metadata.take(answer(topic("t", (1, 5))), now, lists_all=True)
        gone = metadata.is_gone(other, now)
    assert gone
    assert not metadata.is_gone(TP, 15.0)


def test_node_that_a_coordinator_look_up_told_stays_until_the_next_answer() -> None:
    """The metadata may not name it yet."""
    metadata = ClusterMetadata()
    metadata.take(answer(), 0.0)
    metadata.add(Broker(7, "new", 9092, None))
    metadata.add(Broker(1, "elsewhere", 1, None))
    assert metadata.brokers[7].host == "new"
    assert metadata.brokers[1].host == "broker-1"
    metadata.take(answer(), 1.0)
    assert set(metadata.brokers) == {1}
