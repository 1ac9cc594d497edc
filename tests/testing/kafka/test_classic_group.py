"""The model of a classic group answers as Kafka 4.3 does."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

from consumer_sdk.adapters.kafka.groups.member import TopicPartition
from consumer_sdk.adapters.kafka.groups.messages import (
    Heartbeat,
    JoinAnswer,
    JoinGroup,
    LeaveAnswer,
    LeaveGroup,
    SyncAnswer,
    SyncGroup,
)
from consumer_sdk.testing.kafka import (
    ClusterTopics,
    Code,
    CoordinatorOptions,
    GroupCoordinator,
    OffsetCommit,
    Pending,
)

GROUP = "g"
SESSION, REBALANCE = 10.0, 30.0


class Talk:
    """A coordinator, and members that are played by hand."""

    def __init__(self, **options: Any) -> None:
        settings = replace(CoordinatorOptions(initial_rebalance_delay=1.0), **options)
        topics = ClusterTopics(random.Random(1))
        topics.create("t", 2)
        self.coordinator = GroupCoordinator(topics, random.Random(2), settings)
        self.now = 0.0

    def join(
        self, member_id: str = "", *, instance_id: str | None = None, told: bytes = b"s"
    ) -> JoinAnswer | Pending:
        """Joins; a member without an id is given one first."""
        protocols = (("range", told),)
        request = JoinGroup(GROUP, member_id, instance_id, SESSION, REBALANCE, protocols)
        answer = self.coordinator.request(request, self.now)
        assert isinstance(answer, JoinAnswer | Pending)
        if isinstance(answer, JoinAnswer) and answer.error == Code.MEMBER_ID_REQUIRED:
            return self.join(answer.member_id, told=told)
        return answer

    def sync(self, joined: JoinAnswer, *given: tuple[str, bytes]) -> SyncAnswer | Pending:
        """Asks for an assignment."""
        member_id = joined.member_id
        request = SyncGroup(GROUP, joined.generation, member_id, None, "range", given)
        answer = self.coordinator.request(request, self.now)
        assert isinstance(answer, SyncAnswer | Pending)
        return answer

    def beat(self, joined: JoinAnswer) -> int:
        """The code of a heartbeat."""
        request = Heartbeat(GROUP, joined.generation, joined.member_id, None)
        answer = self.coordinator.request(request, self.now)
        assert not isinstance(answer, Pending)
        return answer.error

    def leave(self, joined: JoinAnswer) -> int:
        """The code of a leave."""
        answer = self.coordinator.request(LeaveGroup(GROUP, joined.member_id, None), self.now)
        assert isinstance(answer, LeaveAnswer)
        return answer.error

    def commit(self, joined: JoinAnswer) -> Code:
        """The code of a commit."""
        tp = TopicPartition("t", 0)
        commit = OffsetCommit(GROUP, joined.member_id, joined.generation, None, {tp: 1})
        return self.coordinator.commit(commit, self.now)[tp]

    def wait(self, seconds: float) -> None:
        """Lets time pass."""
        self.now += seconds
        self.coordinator.advance(self.now)


def joined(answer: JoinAnswer | Pending) -> JoinAnswer:
    """What has come of a join."""
    found = answer.answer if isinstance(answer, Pending) else answer
    assert isinstance(found, JoinAnswer)
    assert found.error == 0
    return found


def synced(answer: SyncAnswer | Pending) -> SyncAnswer:
    """What has come of a sync."""
    found = answer.answer if isinstance(answer, Pending) else answer
    assert isinstance(found, SyncAnswer)
    return found


def error(answer: JoinAnswer | SyncAnswer | Pending) -> int | None:
    """The code of what has come; None for nothing."""
    found = answer.answer if isinstance(answer, Pending) else answer
    return None if found is None else found.error


def two_members(**options: Any) -> tuple[Talk, JoinAnswer, JoinAnswer]:
    """Leader and follower of a stable group."""
    talk = Talk(**options)
    waits = talk.join(), talk.join()
    talk.wait(2.5)
    first, second = map(joined, waits)
    pending = talk.sync(second)
    assert error(pending) is None
    given = (first.member_id, b"1"), (second.member_id, b"2")
    assert synced(talk.sync(first, *given)).assignment == b"1"
    assert synced(pending).assignment == b"2"
    return talk, first, second


def test_group_is_answered_together() -> None:
    """The leader alone is told all subscriptions, and brings all assignments."""
    talk, first, second = two_members()
    assert first.generation == second.generation == 1
    assert {member for member, _, _ in first.members} == {first.member_id, second.member_id}
    assert not second.members
    assert talk.beat(first) == talk.beat(second) == Code.NONE


def test_first_rebalance_waits_for_more_members() -> None:
    """Each that comes makes it longer, up to the rebalance timeout."""
    talk = Talk()
    first = talk.join()
    talk.wait(0.9)
    assert error(talk.join()) is None
    talk.wait(0.2)
    assert error(first) is None
    talk.wait(1.0)
    assert joined(first).generation == 1


def test_join_makes_the_others_rejoin() -> None:
    """They are told by their heartbeats, and have the rebalance timeout for it."""
    talk, first, second = two_members()
    third = talk.join()
    assert talk.beat(first) == Code.REBALANCE_IN_PROGRESS
    assert talk.commit(first) is Code.NONE
    talk.join(first.member_id)
    assert error(third) is None
    again = talk.join(second.member_id)
    assert joined(again).generation == 2
    assert talk.commit(joined(again)) is Code.REBALANCE_IN_PROGRESS
    assert talk.beat(second) == Code.ILLEGAL_GENERATION


def test_member_that_does_not_rejoin_in_time_is_out() -> None:
    """Although it heartbeats."""
    talk, first, second = two_members()
    waits = talk.join(), talk.join(first.member_id)
    for _ in range(6):
        talk.wait(5.1)
        talk.beat(second)
    assert [joined(wait).generation for wait in waits] == [2, 2]
    assert talk.beat(second) == Code.UNKNOWN_MEMBER_ID
    assert talk.commit(second) is Code.UNKNOWN_MEMBER_ID


def test_member_that_is_silent_is_out_after_its_session() -> None:
    """And the others rebalance."""
    talk, first, second = two_members()
    talk.wait(9.0)
    talk.beat(first)
    talk.wait(1.5)
    assert talk.beat(first) == Code.REBALANCE_IN_PROGRESS
    assert talk.beat(second) == Code.UNKNOWN_MEMBER_ID


def test_member_that_waits_for_a_join_stays_in() -> None:
    """Its session ends meanwhile; the join itself is the sign of life."""
    talk, first, second = two_members()
    waits = talk.join(first.member_id)
    assert isinstance(waits, Pending)
    talk.wait(9.0)
    talk.beat(second)
    talk.wait(9.0)
    talk.beat(second)
    joined(talk.join(second.member_id))
    assert joined(waits).generation == 2


def test_lost_join_answer_is_told_again() -> None:
    """The same subscription asks for nothing new."""
    talk, first, second = two_members()
    assert joined(talk.join(second.member_id)).generation == 1
    assert synced(talk.sync(second)).assignment == b"2"
    assert error(talk.join(first.member_id)) is None  # the leader's means a rebalance
    assert talk.beat(second) == Code.REBALANCE_IN_PROGRESS


def test_changed_subscription_begins_a_rebalance() -> None:
    """Cooperative members come back with what they own."""
    talk, first, second = two_members()
    assert error(talk.join(second.member_id, told=b"other")) is None
    assert talk.beat(first) == Code.REBALANCE_IN_PROGRESS


def test_rebalance_while_the_leader_is_awaited_sends_all_back() -> None:
    """Who waits for its assignment is told to join again."""
    talk, first, second = two_members()
    waits = [talk.join(), talk.join(first.member_id), talk.join(second.member_id)]
    new = joined(waits[0])
    pending = talk.sync(new)
    talk.leave(second)
    assert error(pending) == Code.REBALANCE_IN_PROGRESS


def test_member_without_a_sync_is_out_after_the_rebalance_timeout() -> None:
    """It has heard the generation, and never asked for its assignment."""
    talk = Talk()
    waits = talk.join(), talk.join()
    talk.wait(2.5)
    first, second = map(joined, waits)
    talk.sync(first, (first.member_id, b"1"))
    for _ in range(4):
        talk.wait(8.0)
        talk.beat(first)
        talk.beat(second)
    assert talk.beat(second) == Code.UNKNOWN_MEMBER_ID
    assert talk.beat(first) == Code.REBALANCE_IN_PROGRESS


def test_leave_is_at_once() -> None:
    """The one that is left rebalances alone."""
    talk, first, second = two_members()
    assert talk.leave(second) == Code.NONE
    assert talk.leave(second) == Code.UNKNOWN_MEMBER_ID
    assert joined(talk.join(first.member_id)).generation == 2


def test_static_member_comes_back_without_a_rebalance() -> None:
    """Its former self is fenced, and its assignment waits for it (KIP-345, KIP-814)."""
    talk = Talk()
    wait = talk.join(instance_id="i")
    talk.wait(1.5)
    first = joined(wait)
    request = SyncGroup(GROUP, 1, first.member_id, "i", "range", ((first.member_id, b"1"),))
    talk.coordinator.request(request, talk.now)
    again = joined(talk.join(instance_id="i"))
    assert again.generation == 1
    assert again.skip_assignment
    assert again.member_id != first.member_id
    beat = Heartbeat(GROUP, 1, first.member_id, "i")
    answer = talk.coordinator.request(beat, talk.now)
    assert not isinstance(answer, Pending)
    assert answer.error == Code.FENCED_INSTANCE_ID


def test_generation_of_nobody_commits_while_the_group_is_empty() -> None:
    """And never over the heads of members."""
    talk, first, second = two_members()
    nobody = JoinAnswer(Code.NONE, generation=-1)
    assert talk.commit(nobody) is Code.UNKNOWN_MEMBER_ID
    talk.leave(first)
    talk.leave(second)
    assert talk.commit(nobody) is Code.NONE


def test_failover_goes_on_with_the_last_generation_that_was_assigned() -> None:
    """Joins under way are lost, and who was about to come is unknown."""
    talk, first, second = two_members()
    third = talk.join()
    talk.coordinator.fail_over(talk.now, node=1, load_time=1.0)
    assert error(third) == Code.NOT_COORDINATOR
    assert talk.beat(first) == Code.COORDINATOR_LOAD_IN_PROGRESS
    talk.wait(1.0)
    assert talk.beat(first) == talk.beat(second) == Code.NONE
    lost = third.answer if isinstance(third, Pending) else third
    assert isinstance(lost, JoinAnswer)
    assert error(talk.join(lost.member_id)) == Code.UNKNOWN_MEMBER_ID


def test_protocols_must_have_one_in_common() -> None:
    """Kafka asks for one that all members know."""
    talk, *_ = two_members()
    protocols = (("other", b""),)
    request = JoinGroup(GROUP, "", None, SESSION, REBALANCE, protocols)
    answer = talk.coordinator.request(request, talk.now)
    assert isinstance(answer, JoinAnswer)
    assert answer.error == Code.INCONSISTENT_GROUP_PROTOCOL


def test_full_group_takes_no_more() -> None:
    """Those who are in it go on."""
    talk, first, _ = two_members(max_size=2)
    assert error(talk.join()) == Code.GROUP_MAX_SIZE_REACHED
    assert talk.beat(first) == Code.NONE
