"""A member of a share group, played without a coordinator."""

from __future__ import annotations

from collections.abc import Collection

from consumer_sdk.adapters.kafka.groups.member import (
    Assigned,
    CoordinatorLost,
    Lost,
    Refused,
    Revoked,
    TopicInfo,
    TopicPartition,
)
from consumer_sdk.adapters.kafka.share.member import ShareMember
from consumer_sdk.adapters.kafka.share.messages import (
    ShareGroupHeartbeat,
    ShareGroupHeartbeatAnswer,
)

TOPIC = bytes(range(16))
P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)


class Played:
    """A member, and what a test makes its coordinator answer."""

    def __init__(self) -> None:
        self.member = ShareMember("g", topics=["t"], drain=30.0, member_id="me")
        self.member.metadata_changed({"t": TopicInfo(TOPIC, 2)}, 0.0)

    def beat(
        self,
        now: float,
        *,
        partitions: Collection[int] | None = None,
        epoch: int = 3,
        error: int = 0,
    ) -> ShareGroupHeartbeat:
        """A heartbeat that is answered."""
        request = self.member.poll(now)
        assert request is not None
        told = None if partitions is None else {TOPIC: frozenset(partitions)}
        answer = ShareGroupHeartbeatAnswer(error, "", "me", epoch, 5.0, told)
        self.member.answered(request, answer, now)
        return request


def test_member_joins_with_its_topics_and_lives_with_its_epoch() -> None:
    """It tells nobody what it reads."""
    played = Played()
    first = played.beat(0.0, partitions=[0, 1])
    assert first == ShareGroupHeartbeat("g", "me", 0, None, ("t",))
    assert played.member.events() == [Assigned(frozenset({P0, P1}))]
    assert played.member.epoch == 3


def test_member_that_has_nothing_asks_again_soon() -> None:
    """The coordinator assigns a moment after the join; the waits become longer."""
    played = Played()
    played.beat(0.0, partitions=[])
    assert played.member.wake_at() == 0.1
    played.beat(0.1)
    assert abs(played.member.wake_at() - 0.3) < 1e-9
    played.beat(played.member.wake_at(), partitions=[0])
    assert played.member.events() == [Assigned(frozenset({P0}))]


def test_partition_that_goes_is_drained_and_the_others_are_read_on() -> None:
    """Other members may have it meanwhile."""
    played = Played()
    played.beat(0.0, partitions=[0, 1])
    played.member.events()
    played.beat(played.member.wake_at(), partitions=[1])
    assert played.member.events() == [Revoked(frozenset({P0}))]
    played.member.released(frozenset({P0}), 6.0)
    assert played.member.held == {P1}


def test_fenced_member_loses_all_and_joins_again_under_its_id() -> None:
    """With epoch 0."""
    played = Played()
    played.beat(0.0, partitions=[0])
    played.member.events()
    played.beat(played.member.wake_at(), error=110)
    (lost,) = played.member.events()
    assert isinstance(lost, Lost)
    assert lost.tps == {P0}
    again = played.beat(played.member.wake_at(), partitions=[0])
    assert (again.member_id, again.epoch, again.topics) == ("me", 0, ("t",))
    assert played.member.events() == [Assigned(frozenset({P0}))]


def test_missing_answer_has_the_coordinator_looked_up_and_everything_told() -> None:
    """Nothing is lost by it."""
    played = Played()
    played.beat(0.0, partitions=[0])
    played.member.events()
    now = played.member.wake_at()
    request = played.member.poll(now)
    assert request is not None
    played.member.failed(request, now)
    assert played.member.events() == [CoordinatorLost()]
    assert played.beat(played.member.wake_at()).topics == ("t",)
    assert played.member.held == {P0}


def test_group_of_another_type_refuses_the_member_for_good() -> None:
    """Asking again would not help."""
    played = Played()
    played.beat(0.0, error=69)
    assert played.member.events() == [Refused(69, "")]
    assert played.member.has_left


def test_leaving_says_so_and_ends() -> None:
    """With epoch -1."""
    played = Played()
    played.beat(0.0, partitions=[0])
    played.member.leave(1.0)
    assert played.beat(1.0, epoch=-1).epoch == -1
    assert played.member.has_left
