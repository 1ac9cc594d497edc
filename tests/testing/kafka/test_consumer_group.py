"""The model of a consumer group (KIP-848) answers as Kafka 4.3 does."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from consumer_sdk.adapters.kafka.groups.member import TopicPartition
from consumer_sdk.adapters.kafka.groups.messages import (
    ConsumerHeartbeat,
    ConsumerHeartbeatAnswer,
    TopicPartitions,
)
from consumer_sdk.testing.kafka import (
    ClusterTopics,
    Code,
    CoordinatorOptions,
    GroupCoordinator,
    OffsetCommit,
    OffsetFetch,
)

GROUP = "g"


class Talk:
    """A coordinator with a topic of four partitions, and members that are played by hand."""

    def __init__(self, **options: Any) -> None:
        topics = ClusterTopics(random.Random(1))
        self.id = topics.create("t", 4).topic_id
        self.topics = topics
        settings = replace(CoordinatorOptions(assignment_interval=0.0), **options)
        self.coordinator = GroupCoordinator(topics, random.Random(2), settings)
        self.now = 0.0
        self.epochs: dict[str, int] = {}

    def join(self, name: str, **fields: Any) -> ConsumerHeartbeatAnswer:
        """Sends a first heartbeat."""
        given = {"rebalance_timeout": 10.0, "topics": ("t",), "owned": {}, **fields}
        return self.beat(name, epoch=0, **given)

    def beat(
        self, name: str, *, epoch: int | None = None, **fields: Any
    ) -> ConsumerHeartbeatAnswer:
        """Sends a heartbeat with the epoch that was told last."""
        epoch = self.epochs[name] if epoch is None else epoch
        request = ConsumerHeartbeat(GROUP, name, epoch, **fields)
        answer = self.coordinator.request(request, self.now)
        assert isinstance(answer, ConsumerHeartbeatAnswer)
        if answer.error == 0:
            self.epochs[name] = answer.epoch
        return answer

    def owned(self, *numbers: int) -> TopicPartitions:
        """Partitions of the topic."""
        return {self.id: frozenset(numbers)} if numbers else {}

    def numbers(self, answer: ConsumerHeartbeatAnswer) -> set[int]:
        """Those of the topic that an answer assigns."""
        assert answer.assignment is not None
        return set(answer.assignment.get(self.id, ()))

    def commit(self, name: str, epoch: int, *numbers: int) -> Mapping[int, Code]:
        """Commits offsets; the code of each partition."""
        offsets = {TopicPartition("t", number): 7 for number in numbers}
        commit = OffsetCommit(GROUP, name, epoch, None, offsets)
        codes = self.coordinator.commit(commit, self.now)
        return {tp.partition: code for tp, code in codes.items()}


def two_members() -> Talk:
    """Both are stable, with two partitions each."""
    talk = Talk()
    first = talk.numbers(talk.join("a"))
    talk.join("b")
    kept = talk.numbers(talk.beat("a"))
    talk.beat("a", owned=talk.owned(*kept))
    assert talk.numbers(talk.beat("b")) == first - kept
    return talk


def test_first_member_gets_all_at_once() -> None:
    """Nobody else has them, so there is nothing to wait for."""
    talk = Talk()
    answer = talk.join("a")
    assert talk.numbers(answer) == {0, 1, 2, 3}
    assert answer.epoch > 0


def test_partition_is_assigned_after_its_owner_has_given_it_back() -> None:
    """What moves is revoked first; what stays is never out of the assignment."""
    talk = Talk()
    before = talk.join("a").epoch
    joined = talk.join("b")
    assert talk.numbers(joined) == set()
    told = talk.beat("a")
    kept = talk.numbers(told)
    assert len(kept) == 2
    assert told.epoch == before  # until it has given them back
    assert talk.beat("a", owned=talk.owned(0, 1, 2, 3)).assignment is None
    assert talk.beat("b").assignment is None
    assert talk.beat("a", owned=talk.owned(*kept)).epoch == joined.epoch
    assert talk.numbers(talk.beat("b")) == {0, 1, 2, 3} - kept


def test_heartbeat_without_news_tells_no_assignment() -> None:
    """None says that nothing has changed; a full request is told all."""
    talk = two_members()
    assert talk.beat("a").assignment is None
    full = talk.beat("a", rebalance_timeout=10.0, topics=("t",), owned=talk.owned())
    assert len(talk.numbers(full)) == 2


def test_lost_answer_with_a_new_epoch_is_made_good_by_a_full_request() -> None:
    """The member comes with the epoch before, and owns no more than it was assigned."""
    talk = Talk()
    talk.join("a")
    talk.join("b")
    epoch = talk.epochs["a"]
    kept = talk.numbers(talk.beat("a"))
    talk.beat("a", owned=talk.owned(*kept))  # with a new epoch, which gets lost
    assert talk.beat("a", epoch=epoch).error == Code.FENCED_MEMBER_EPOCH
    fields = {"rebalance_timeout": 10.0, "topics": ("t",), "owned": talk.owned(*kept)}
    assert talk.numbers(talk.beat("a", epoch=epoch, **fields)) == kept
    assert talk.beat("a", epoch=epoch + 7, **fields).error == Code.FENCED_MEMBER_EPOCH


def test_member_that_joins_again_keeps_its_epoch_and_assignment() -> None:
    """Epoch 0 is accepted at any time since Kafka 4."""
    talk = two_members()
    epoch = talk.epochs["a"]
    again = talk.join("a")
    assert again.epoch == epoch
    assert len(talk.numbers(again)) == 2


def test_silent_member_is_fenced_after_its_session() -> None:
    """Its partitions go to the other one at that one's next heartbeat."""
    talk = two_members()
    talk.now = 40.0
    talk.beat("b")
    talk.now = 46.0
    assert talk.numbers(talk.beat("b")) == {0, 1, 2, 3}
    assert talk.beat("a").error == Code.UNKNOWN_MEMBER_ID


def test_member_that_does_not_revoke_in_time_is_fenced() -> None:
    """It heartbeats, but keeps what it was told to give back."""
    talk = Talk()
    talk.join("a")
    talk.join("b")
    talk.beat("a", owned=talk.owned(0, 1, 2, 3))
    talk.now = 9.9
    assert talk.beat("a", owned=talk.owned(0, 1, 2, 3)).error == 0
    talk.now = 10.1
    assert talk.beat("a").error == Code.UNKNOWN_MEMBER_ID
    assert talk.numbers(talk.beat("b")) == {0, 1, 2, 3}


def test_commit_with_an_older_epoch_is_taken_for_what_was_held_since() -> None:
    """KIP-1251: each partition has the epoch with which the member got it."""
    talk = Talk()
    old = talk.join("a").epoch
    talk.join("b")
    kept = talk.numbers(talk.beat("a"))
    (gone, *_) = {0, 1, 2, 3} - kept
    (stays, *_) = kept
    assert talk.commit("a", old, gone, stays) == {gone: Code.NONE, stays: Code.NONE}
    new = talk.beat("a", owned=talk.owned(*kept)).epoch
    codes = talk.commit("a", old, gone, stays)
    assert codes == {gone: Code.STALE_MEMBER_EPOCH, stays: Code.NONE}
    assert talk.commit("a", new + 1, stays) == {stays: Code.STALE_MEMBER_EPOCH}
    assert talk.commit("x", new, stays) == {stays: Code.UNKNOWN_MEMBER_ID}


def test_offsets_are_read_with_the_epoch_of_now() -> None:
    """Or by who is no member."""
    talk = two_members()
    talk.commit("a", talk.epochs["a"], 0)
    tp = TopicPartition("t", 0)
    fetch = OffsetFetch(GROUP, "a", talk.epochs["a"], (tp, TopicPartition("t", 1)))
    found = talk.coordinator.fetch(fetch, talk.now)
    assert found == {tp: 7, TopicPartition("t", 1): -1}
    stale = talk.coordinator.fetch(replace(fetch, epoch=1), talk.now)
    assert stale is Code.STALE_MEMBER_EPOCH
    nobody = replace(fetch, member_id=None, epoch=-1)
    assert talk.coordinator.fetch(nobody, talk.now) == found


def test_member_that_leaves_is_unknown() -> None:
    """The others get its partitions without a wait."""
    talk = two_members()
    assert talk.beat("a", epoch=-1).epoch == -1
    assert talk.beat("a", epoch=-1).error == Code.UNKNOWN_MEMBER_ID
    assert talk.numbers(talk.beat("b")) == {0, 1, 2, 3}


def test_static_member_comes_back_to_what_it_had() -> None:
    """Epoch -2 keeps its partitions for a session; a second one with its instance id is refused."""
    talk = Talk()
    assert talk.numbers(talk.join("a", instance_id="i")) == {0, 1, 2, 3}
    assert talk.join("a2", instance_id="i").error == Code.UNRELEASED_INSTANCE_ID
    assert talk.join("a", instance_id="i").error == Code.UNRELEASED_INSTANCE_ID
    talk.beat("a", epoch=-2, instance_id="i")
    assert talk.numbers(talk.join("a2", instance_id="i")) == {0, 1, 2, 3}
    assert talk.beat("a", instance_id="i").error == Code.FENCED_INSTANCE_ID


def test_new_partitions_and_topics_are_assigned() -> None:
    """The next heartbeat of any member sees them."""
    talk = Talk()
    talk.join("a", topics=("t", "u"))
    talk.topics.grow("t", 5)
    assert talk.numbers(talk.beat("a")) == {0, 1, 2, 3, 4}
    new = talk.topics.create("u", 1)
    assert (talk.beat("a").assignment or {})[new.topic_id] == {0}
    talk.topics.delete("t")
    assert talk.numbers(talk.beat("a")) == set()


def test_pattern_is_evaluated_by_the_coordinator() -> None:
    """The whole name has to match."""
    talk = Talk()
    other = talk.topics.create("tt", 1)
    assert talk.numbers(talk.join("a", topics=None, pattern="t")) == {0, 1, 2, 3}
    answer = talk.beat("a", pattern="t+")
    assert (answer.assignment or {})[other.topic_id] == {0}
    assert talk.beat("a", pattern="(").error == Code.INVALID_REGULAR_EXPRESSION


def test_topic_that_is_not_subscribed_any_more_is_revoked_at_once() -> None:
    """Also between two targets."""
    talk = Talk(assignment_interval=60.0)
    other = talk.topics.create("u", 1)
    talk.join("a", topics=("t", "u"))
    answer = talk.beat("a", topics=("t",), owned={})
    assert answer.assignment is not None
    assert other.topic_id not in answer.assignment


def test_targets_are_an_interval_apart() -> None:
    """Who joins between two has nothing until then."""
    talk = Talk(assignment_interval=1.0)
    talk.join("a")
    assert talk.numbers(talk.join("b")) == set()
    assert talk.beat("a").assignment is None
    talk.now = 1.1
    assert len(talk.numbers(talk.beat("a"))) == 2


def test_full_group_takes_no_more() -> None:
    """Those who are in it go on."""
    talk = Talk(max_size=1)
    talk.join("a")
    assert talk.join("b").error == Code.GROUP_MAX_SIZE_REACHED
    assert talk.beat("a").error == 0


@pytest.mark.parametrize(
    "fields, code",
    [
        ({"owned": None}, Code.INVALID_REQUEST),
        ({"topics": None}, Code.INVALID_REQUEST),
        ({"rebalance_timeout": None}, Code.INVALID_REQUEST),
        ({"assignor": "none"}, Code.UNSUPPORTED_ASSIGNOR),
    ],
)
def test_incomplete_join_is_refused(fields: dict[str, Any], code: Code) -> None:
    """A join tells everything."""
    assert Talk().join("a", **fields).error == code


def test_failover_keeps_the_group_and_begins_its_sessions_anew() -> None:
    """Until the other broker has read the log it says so."""
    talk = two_members()
    talk.now = 40.0
    talk.coordinator.fail_over(talk.now, node=1, load_time=2.0)
    assert talk.beat("a").error == Code.COORDINATOR_LOAD_IN_PROGRESS
    request = ConsumerHeartbeat(GROUP, "a", talk.epochs["a"])
    answer = talk.coordinator.request(request, talk.now, node=0)
    assert isinstance(answer, ConsumerHeartbeatAnswer)
    assert answer.error == Code.NOT_COORDINATOR
    talk.now = 86.0
    assert talk.beat("a").error == 0
    assert talk.beat("b").error == 0


def test_range_gives_each_member_neighbours() -> None:
    """The members vote for the assignor."""
    talk = Talk()
    talk.join("a", assignor="range")
    talk.join("b", assignor="range")
    assert talk.numbers(talk.beat("a")) == {0, 1}
