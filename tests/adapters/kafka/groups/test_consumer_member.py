"""The member of the consumer protocol, played without I/O, and against a real Kafka."""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable
from typing import Any

import pytest
from aiokafka.protocol.group import JoinGroupRequest
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    initialize,
    invariant,
    multiple,
    precondition,
    rule,
)

from consumer_sdk.adapters.kafka.commits.structs import OffsetCommitByName, OffsetEntry
from consumer_sdk.adapters.kafka.groups.consumer_member import ConsumerMember
from consumer_sdk.adapters.kafka.groups.member import (
    Assigned,
    CoordinatorLost,
    Event,
    Lost,
    Refused,
    Revoked,
    TopicInfo,
    TopicPartition,
)
from consumer_sdk.adapters.kafka.groups.messages import (
    ConsumerHeartbeat,
    ConsumerHeartbeatAnswer,
    HeartbeatAnswer,
    TopicPartitions,
)
from consumer_sdk.errors import ConfigurationError
from tests.adapters.kafka.groups.asking import TRANSIENT, Line, line_to
from tests.adapters.kafka.harness import KafkaHarness

ONE, TWO, NEW = b"1" * 16, b"2" * 16, b"3" * 16
TOPICS = {"one": TopicInfo(ONE, 4), "two": TopicInfo(TWO, 4)}
SESSION, DRAIN, INTERVAL = 45.0, 300.0, 5.0
LOADING, NOT_AVAILABLE, NOT_COORDINATOR, UNKNOWN, NO_GROUP = 14, 15, 16, 25, 69
FENCED, UNRELEASED, STALE, INSTANCE_FENCED, MEMBER_ID_REQUIRED = 110, 111, 113, 82, 79


def tps(*places: str) -> frozenset[TopicPartition]:
    """``one/0`` is partition 0 of topic ``one``."""
    split = (place.rsplit("/", 1) for place in places)
    return frozenset(TopicPartition(topic, int(partition)) for topic, partition in split)


def told(*places: str) -> TopicPartitions:
    """The same, as answers and heartbeats tell it."""
    ids = {"one": ONE, "two": TWO, "new": NEW}
    found: dict[bytes, frozenset[int]] = {}
    for topic, partition in tps(*places):
        found[ids[topic]] = found.get(ids[topic], frozenset()) | {partition}
    return found


class Play:
    """A member, a clock, and a coordinator that says what the test tells it to."""

    def __init__(self, **options: Any) -> None:
        usual: dict[str, Any] = {"topics": ["one"], "rebalance_timeout": DRAIN, "member_id": "me"}
        self.member = ConsumerMember("g", **(usual | options))
        self.member.metadata_changed(TOPICS, 0.0)
        self.now = 100.0
        self.epoch = 0

    def poll(self) -> ConsumerHeartbeat:
        """The request that is due now."""
        request = self.member.poll(self.now)
        assert isinstance(request, ConsumerHeartbeat), f"none is due before {self.member.wake_at()}"
        assert self.member.poll(self.now) is None
        assert self.member.wake_at() == math.inf
        return request

    def later(self) -> ConsumerHeartbeat:
        """The next request, when it is due."""
        self.now = max(self.now, self.member.wake_at())
        return self.poll()

    def answer(
        self, request: ConsumerHeartbeat, *places: str, epoch: int | None = None
    ) -> list[Event]:
        """It is well; with places the whole assignment."""
        self.epoch = epoch or self.epoch + 1
        return self.say(request, assignment=told(*places))

    def say(self, request: ConsumerHeartbeat, error: int = 0, **fields: Any) -> list[Event]:
        """Any answer; without an assignment by default."""
        answer = {"message": "why" if error else "", "epoch": self.epoch, "interval": INTERVAL}
        made = ConsumerHeartbeatAnswer(error, **(answer | fields))
        self.member.answered(request, made, self.now)
        return self.member.events()

    def fail(self, request: ConsumerHeartbeat) -> list[Event]:
        """No answer."""
        self.member.failed(request, self.now)
        return self.member.events()

    def release(self, *places: str) -> list[Event]:
        """The owner has drained them."""
        self.member.released(tps(*places), self.now)
        return self.member.events()


def joined(*places: str, **options: Any) -> Play:
    """A member that has acknowledged its first assignment."""
    play = Play(**options)
    events = play.answer(play.poll(), *places)
    assert events == ([Assigned(tps(*places))] if places else [])
    while play.member.wake_at() <= play.now:
        assert play.say(play.poll()) == []
    return play


# -- joining ------------------------------------------------------------------------------------


def test_join_tells_everything_and_owns_nothing() -> None:
    """Epoch 0 and an id of its own; the topics in order, and no pattern."""
    play = Play(topics=["two", "one", "one"], rack="r", assignor="uniform")
    assert (play.member.epoch, play.member.held, play.member.has_left) == (-1, frozenset(), False)
    assert play.member.held_until == -math.inf
    assert play.member.group_topics == frozenset()  # the broker leads
    assert play.poll() == ConsumerHeartbeat(
        *("g", "me", 0, None, "r", DRAIN, ("one", "two"), "", "uniform"), owned={}
    )
    assert play.member.held_until == -math.inf


def test_member_id_that_the_coordinator_gives_is_used() -> None:
    """The first brokers of the protocol may give one; where the answer names none, the member's own stays."""
    play = Play()
    play.say(play.poll(), epoch=1, member_id="given")
    assert play.member.member_id == "given"
    assert play.later().member_id == "given"
    assert joined().member.member_id == "me"


def test_interval_that_is_none_is_not_taken() -> None:
    """The member would heartbeat without a rest."""
    play = joined("one/0")
    play.say(play.later(), interval=2.0)
    assert play.member.wake_at() == play.now + 2.0
    play.say(play.later(), interval=0.0)
    assert play.member.wake_at() == play.now + 2.0


def test_heartbeat_may_be_due_at_once() -> None:
    """Whoever knows that an answer may have more to tell does not wait for the interval."""
    play = joined("one/0")
    assert play.member.wake_at() > play.now
    play.member.hurry(play.now)
    play.say(play.poll())
    assert play.member.wake_at() == play.now + INTERVAL


def test_member_ids_differ() -> None:
    """Two members with one id would fence each other."""
    one, two = (ConsumerMember("g", topics=["t"], rebalance_timeout=1.0) for _ in range(2))
    assert one.member_id != two.member_id


@pytest.mark.parametrize("options", [{"topics": []}, {"topics": ["t"], "pattern": "^t"}])
def test_member_subscribes_to_topics_or_to_a_pattern(options: dict[str, Any]) -> None:
    """Said before anything is sent."""
    with pytest.raises(ConfigurationError, match="topics or to a pattern"):
        Play(**options)


def test_assignment_is_owned_and_acknowledged_at_once() -> None:
    """Afterwards heartbeats tell nothing but the epoch, at the broker's interval after the last was sent."""
    play = Play()
    join = play.poll()
    play.now += 1
    assert play.answer(join, "one/0", "one/1") == [Assigned(tps("one/0", "one/1"))]
    assert (play.member.held, play.member.epoch) == (tps("one/0", "one/1"), 1)
    acknowledgement = play.poll()
    assert acknowledgement == ConsumerHeartbeat("g", "me", 1, owned=told("one/0", "one/1"))
    sent = play.now
    play.now += 1
    assert play.say(acknowledgement, epoch=2) == []
    assert (play.member.epoch, play.member.wake_at()) == (2, sent + INTERVAL)
    assert play.later() == ConsumerHeartbeat("g", "me", 2)


def test_member_without_partitions_says_nothing_more() -> None:
    """There is nothing to acknowledge: the join said already that it owns nothing."""
    play = joined()
    assert play.member.wake_at() == play.now + INTERVAL


def test_pattern_is_the_brokers() -> None:
    """Topics of it come by their ids, and count once their names are known."""
    play = Play(topics=(), pattern="^n.*")
    join = play.poll()
    assert (join.topics, join.pattern) == ((), "^n.*")
    assert play.answer(join, "one/0", "new/1") == [Assigned(tps("one/0"))]
    assert play.member.unknown_topic_ids == {NEW}
    assert play.poll().owned == told("one/0")


def test_unresolved_partitions_are_owned_once_they_have_a_name() -> None:
    """What is resolved is acknowledged before, and again afterwards."""
    play = Play()
    play.answer(play.poll(), "one/0", "new/1")
    play.say(play.poll())
    assert play.member.held == tps("one/0")
    play.member.metadata_changed(TOPICS | {"new": TopicInfo(NEW, 2)}, play.now)
    assert play.member.events() == [Assigned(tps("new/1"))]
    assert play.member.unknown_topic_ids == frozenset()
    assert play.poll().owned == told("one/0", "new/1")


@pytest.mark.parametrize(
    "error", [-1, 7, 13, LOADING, NOT_AVAILABLE, NOT_COORDINATOR, 19, 20, 56, 89]
)
def test_brokers_trouble_is_asked_again_after_a_while(error: int) -> None:
    """The whole request, later each time, but at most a second."""
    play = Play()
    request, waits = play.poll(), []
    for _ in range(8):
        events = play.say(request, error)
        lost = error in (NOT_AVAILABLE, NOT_COORDINATOR)
        assert events == ([CoordinatorLost()] if lost else [])
        waits.append(round(play.member.wake_at() - play.now, 3))
        request = play.later()
        assert (request.epoch, request.topics, request.owned) == (0, ("one",), {})
    assert waits == [0.1, 0.2, 0.4, 0.8, 1.0, 1.0, 1.0, 1.0]
    assert play.answer(request, "one/0") == [Assigned(tps("one/0"))]


def test_error_of_the_server_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    """It may stay for long; if it comes again after a good answer, it is told again. Others pass soon."""
    play = joined("one/0")
    with caplog.at_level(logging.WARNING):
        play.say(play.later(), LOADING)
        assert not caplog.records
        for _ in range(3):
            play.say(play.later(), -1)
        assert len(caplog.records) == 1
        play.say(play.later())
        play.say(play.later(), -1)
    assert [record.levelname for record in caplog.records] == ["WARNING"] * 2
    assert "'g', member me: the coordinator answers error -1 (why)" in caplog.text


@pytest.mark.parametrize("error", [24, 29, 30, 35, 42, 69, 81, INSTANCE_FENCED, 112, 128, 9999])
def test_refusal_ends_the_membership(error: int) -> None:
    """With the broker's words; nothing is sent any more."""
    play = Play()
    assert play.say(play.poll(), error) == [Refused(error, "why")]
    assert (play.member.has_left, play.member.wake_at()) == (True, math.inf)
    assert play.member.poll(play.now + 1000) is None


def test_refused_member_loses_what_it_had() -> None:
    """First that, then why."""
    play = joined("one/0")
    lost, refused = play.say(play.later(), INSTANCE_FENCED)
    assert isinstance(lost, Lost)
    assert (lost.tps, "why" in lost.reason) == (tps("one/0"), True)
    assert refused == Refused(INSTANCE_FENCED, "why")
    assert (play.member.held, play.member.epoch) == (frozenset(), -1)


# -- revoking -----------------------------------------------------------------------------------


def test_revoked_partition_is_owned_until_it_is_drained_and_given_back_at_once() -> None:
    """The others go on; heartbeats go on too."""
    play = joined("one/0", "one/1")
    assert play.answer(play.later(), "one/0") == [Revoked(tps("one/1"))]
    assert play.member.held == tps("one/0", "one/1")
    assert play.member.wake_at() > play.now
    for _ in range(3):
        beat = play.later()
        assert beat.owned in (None, told("one/0", "one/1"))
        assert play.say(beat) == []
    play.now += 1
    assert play.release("one/1") == []
    assert play.poll() == ConsumerHeartbeat("g", "me", play.epoch, owned=told("one/0"))
    assert play.member.held == tps("one/0")


def test_partitions_that_drain_one_by_one_are_given_back_together() -> None:
    """The coordinator waits for the last one anyway."""
    play = joined("one/0", "one/1", "one/2")
    play.answer(play.later(), "one/2")
    play.release("one/0")
    assert play.member.wake_at() > play.now
    play.release("one/1")
    assert play.poll().owned == told("one/2")


def test_drained_while_a_request_is_under_way_is_told_by_the_next_one() -> None:
    """There is one request at a time."""
    play = joined("one/0", "one/1")
    play.answer(play.later(), "one/0")
    beat = play.later()
    play.release("one/1")
    assert play.member.poll(play.now) is None
    play.say(beat)
    assert play.poll().owned == told("one/0")


def test_newest_assignment_counts_while_a_drain_is_under_way() -> None:
    """Nothing is revoked or assigned twice."""
    play = joined("one/0", "one/1", "one/2")
    assert play.answer(play.later(), "one/0", "one/1") == [Revoked(tps("one/2"))]
    assert play.answer(play.later(), "one/0", "two/0") == [
        Revoked(tps("one/1")),
        Assigned(tps("two/0")),
    ]
    assert play.answer(play.later(), "one/0", "two/0", "two/1") == [Assigned(tps("two/1"))]
    assert play.release("one/1", "one/2") == []
    assert play.poll().owned == told("one/0", "two/0", "two/1")


def test_partition_that_comes_back_is_drained_first_and_assigned_anew() -> None:
    """Its owner has begun to end; a new one begins after that. And the coordinator is told what is owned."""
    play = joined("one/0", "one/1")
    play.answer(play.later(), "one/0")
    assert play.answer(play.later(), "one/0", "one/1") == []
    assert play.release("one/1") == [Assigned(tps("one/1"))]
    beat = play.poll()
    assert beat.owned == told("one/0", "one/1")
    play.say(beat)
    assert play.member.held_until == play.now + SESSION


def test_released_counts_for_what_is_being_drained_alone() -> None:
    """A drain that ends late says nothing about what was lost, and assigned anew since."""
    play = joined("one/0")
    play.answer(play.later())
    play.say(play.later(), FENCED)
    assert play.answer(play.later(), "one/0") == [Assigned(tps("one/0"))]
    assert play.release("one/0", "two/3") == []
    assert play.member.held == tps("one/0")


def test_assignment_that_is_as_before_is_acknowledged_too() -> None:
    """The coordinator waits for what the member owns, whenever it has told an assignment."""
    play = joined("one/0")
    beat = play.later()
    assert beat.owned is None
    assert play.answer(beat, "one/0") == []
    assert play.poll().owned == told("one/0")


def test_topic_made_again_is_another_one_of_the_same_name() -> None:
    """The old one's partition is drained before the new one's begins."""
    play = joined("one/0")
    play.member.metadata_changed({"one": TopicInfo(NEW, 4)}, play.now)
    assert play.member.events() == []
    assert play.answer(play.later(), "new/0") == [Revoked(tps("one/0"))]
    assert play.release("one/0") == [Assigned(tps("one/0"))]
    assert play.poll().owned == told("new/0")


def test_both_topics_of_one_name_never_share_an_owner() -> None:
    """While the coordinator knows both, the cluster's is meant."""
    play = joined("one/0")
    play.member.metadata_changed({"one": TopicInfo(NEW, 4)}, play.now)
    play.member.events()
    assert play.answer(play.later(), "new/0", "one/0") == [Revoked(tps("one/0"))]
    assert play.release("one/0") == [Assigned(tps("one/0"))]
    assert play.poll().owned == told("new/0")


def test_of_many_pairs_of_topics_the_clusters_are_meant() -> None:
    """In whichever order they are looked at."""
    names = [f"t{number}" for number in range(12)]
    old, new = ({name: f"{age}{name}".ljust(16).encode() for name in names} for age in "on")
    play = Play(topics=names)
    play.member.metadata_changed({name: TopicInfo(old[name], 1) for name in names}, play.now)
    of_old, of_new = ({each[name]: frozenset({0}) for name in names} for each in (old, new))
    play.say(play.poll(), epoch=1, assignment=of_old)
    play.say(play.poll(), epoch=1)
    play.member.metadata_changed({name: TopicInfo(new[name], 1) for name in names}, play.now)
    places = tps(*(f"{name}/0" for name in names))
    assert play.say(play.later(), epoch=1, assignment={**of_new, **of_old}) == [Revoked(places)]
    play.member.released(places, play.now)
    assert play.member.events() == [Assigned(places)]
    assert play.poll().owned == of_new


def test_deleted_topic_leaves_by_its_name() -> None:
    """The cluster has it no more, but its owner still does."""
    play = joined("one/0", "two/0")
    play.member.metadata_changed({"two": TOPICS["two"]}, play.now)
    assert play.member.events() == []
    assert play.answer(play.later(), "two/0") == [Revoked(tps("one/0"))]


# -- losing -------------------------------------------------------------------------------------


@pytest.mark.parametrize("error", [FENCED, UNKNOWN, STALE, NO_GROUP])
def test_fenced_member_loses_all_and_joins_again_as_itself(error: int) -> None:
    """What was being drained is lost too; the join owns nothing."""
    play = joined("one/0", "one/1")
    play.answer(play.later(), "one/0")
    (lost,) = play.say(play.later(), error)
    assert isinstance(lost, Lost)
    assert (lost.tps, str(error) in lost.reason) == (tps("one/0", "one/1"), True)
    assert (play.member.held, play.member.epoch) == (frozenset(), -1)
    assert play.member.held_until == -math.inf
    join = play.later()
    assert (join.member_id, join.epoch, join.owned) == ("me", 0, {})
    assert play.answer(join, "one/1", epoch=9) == [Assigned(tps("one/1"))]
    assert play.member.epoch == 9


def test_member_that_is_fenced_again_and_again_slows_down() -> None:
    """Joining well in between is not the end of it."""
    play = joined("one/0")
    waits = []
    for _ in range(5):
        play.say(play.later(), FENCED)
        waits.append(round(play.member.wake_at() - play.now, 3))
        play.answer(play.later(), "one/0")
    assert waits == [0.1, 0.2, 0.4, 0.8, 1.0]


def test_waits_begin_anew_after_a_good_heartbeat() -> None:
    """Of a member: the coordinator is well again."""
    play = joined("one/0")
    for error in (LOADING, LOADING, LOADING, 0, LOADING):
        play.say(play.later(), error)
    assert play.member.wake_at() == pytest.approx(play.now + 0.1)


def test_lost_answer_makes_the_next_heartbeat_tell_all() -> None:
    """The epoch may have been raised in it: to a full heartbeat of the old one the coordinator tells the new one."""
    play = joined("one/0", rack="r")
    assert play.fail(play.later()) == [CoordinatorLost()]
    beat = play.later()
    assert (beat.epoch, beat.owned, beat.rebalance_timeout) == (1, told("one/0"), DRAIN)
    assert (beat.topics, beat.pattern, beat.rack) == (("one",), "", "r")
    assert play.answer(beat, "one/0", "one/1", epoch=5) == [Assigned(tps("one/1"))]
    assert (beat := play.poll()).owned == told("one/0", "one/1")
    assert (beat.epoch, beat.topics) == (5, ("one",))


@pytest.mark.parametrize("epoch", [0, -1])
def test_good_answer_without_an_epoch_counts_as_none(epoch: int) -> None:
    """It is that of a member that leaves: a member has an epoch above 0."""
    play = joined("one/0")
    held_until = play.member.held_until
    assert play.say(play.later(), epoch=epoch, assignment={}) == []
    assert play.member.epoch == 1
    assert play.member.held_until < held_until + INTERVAL
    beat = play.later()
    assert (beat.epoch, beat.topics, beat.owned) == (1, ("one",), told("one/0"))


@pytest.mark.parametrize("instance", [None, "i"])
def test_heartbeat_that_fails_is_sent_again_in_the_same_epoch(instance: str | None) -> None:
    """A member goes on; only a static one whose join fails gives its place back first."""
    play = joined("one/0", instance_id=instance)
    play.fail(play.later())
    assert play.later().epoch == 1
    play = Play(instance_id=instance)
    play.fail(play.poll())
    assert play.later().epoch == (0 if instance is None else -2)


def test_late_answer_to_what_has_failed_is_not_heard() -> None:
    """Nor is one that comes twice."""
    play = joined("one/0")
    request = play.later()
    play.fail(request)
    assert play.say(request, UNKNOWN) == []
    again = play.later()
    assert play.say(request, UNKNOWN) == []
    assert play.fail(request) == []
    assert play.answer(again, "one/0") == []
    assert play.say(again, UNKNOWN) == []
    assert play.member.held == tps("one/0")


def test_session_begins_when_the_request_was_sent() -> None:
    """An answer takes its time, and errors and silence begin none."""
    play = joined("one/0")
    beat = play.later()
    sent = play.now
    play.now += 3
    play.say(beat)
    assert play.member.held_until == sent + SESSION
    play.fail(play.later())
    play.say(play.later(), LOADING)
    assert play.member.held_until == sent + SESSION


def test_drain_beyond_the_rebalance_timeout_costs_the_membership() -> None:
    """The coordinator counts from the answer that revokes; heartbeats do not help."""
    play = joined("one/0", "one/1", rebalance_timeout=10.0)
    beat = play.later()
    end = play.now + 10
    play.now += 1
    play.answer(beat, "one/0")
    play.say(play.later())
    assert play.member.held_until == end
    play.release("one/1")
    back = play.poll()
    assert play.member.held_until == end
    play.say(back)
    assert play.member.held_until == play.now + SESSION


def test_drain_began_with_the_first_answer_that_was_lost() -> None:
    """The coordinator revoked in it, and counts from there; that we heard of it later is our trouble."""
    play = joined("one/0", "one/1", rebalance_timeout=20.0)
    lost = play.later()
    end = play.now + 20
    play.now += 7
    play.fail(lost)
    play.say(play.later(), LOADING)
    assert play.answer(play.later(), "one/0") == [Revoked(tps("one/1"))]
    assert play.member.held_until == end


def test_answer_that_is_not_read_yet_may_revoke() -> None:
    """The process stands still with it; the rebalance timeout may end before the session."""
    play = joined("one/0", "one/1", rebalance_timeout=20.0)
    play.later()
    assert play.member.held_until == play.now + 20


def test_answer_read_after_a_session_counts_as_none() -> None:
    """The process stood still: the partitions may have another owner by now."""
    play = joined("one/0")
    beat = play.later()
    play.now += SESSION
    assert play.answer(beat, "one/0", "one/1") == []
    assert play.member.held_until < play.now
    again = play.later()
    assert (again.owned, again.topics, again.epoch) == (told("one/0"), ("one",), 1)
    (lost,) = play.say(again, FENCED)
    assert isinstance(lost, Lost)


def test_process_that_stood_still_asks_at_once() -> None:
    """What it holds it does not trust until the coordinator has answered."""
    play = joined("one/0")
    play.now += 1000
    assert play.member.held_until < play.now
    beat = play.poll()
    play.say(beat)
    assert play.member.held_until == play.now + SESSION


def test_heartbeat_that_was_given_up_may_be_carried_out_late() -> None:
    """What its answer gave is told to nobody again, but to who tells everything; so that goes on for a while."""
    play = joined("one/0")
    play.fail(play.later())
    failed_at = play.now
    assert play.answer(play.later(), "one/0") == []
    while play.now < failed_at + 60 - INTERVAL:
        beat = play.later()
        assert (beat.topics, beat.owned) == (("one",), told("one/0"))
        play.say(beat, assignment=told("one/0"))
    assert play.answer(play.later(), "one/0", "one/1") == [Assigned(tps("one/1"))]
    play.now = failed_at + 60
    beat = play.later()
    assert (beat.topics, beat.owned) == (None, told("one/0", "one/1"))
    play.say(beat)
    assert play.later().owned is None


def test_heartbeat_that_was_given_up_is_over_after_a_minute() -> None:
    """To the second: the next one tells no more than it has to, and its answer counts from when it was sent."""
    play = joined("one/0", rebalance_timeout=8.0)
    play.fail(play.later())
    end = play.now + 60
    play.say(play.later(), interval=1000.0)
    play.now = end - 0.5
    play.member.hurry(play.now)
    play.say(play.poll(), interval=1000.0)
    assert play.member.held_until == play.now + 8.0
    play.now = end
    play.member.hurry(play.now)
    beat = play.poll()
    assert (beat.topics, beat.owned) == (None, None)
    play.say(beat)
    assert play.member.held_until == play.now + SESSION


def test_name_that_is_learnt_while_a_heartbeat_does_not_own_the_partition_waits_for_its_answer() -> (
    None
):
    """The coordinator takes it for given back, and may give it to the next member at once."""
    play = joined("one/0")
    beat = play.later()
    assert play.answer(beat, "one/0", "one/1", "new/0") == [Assigned(tps("one/1"))]
    beat = play.poll()
    assert beat.owned == told("one/0", "one/1")
    play.member.metadata_changed({**TOPICS, "new": TopicInfo(NEW, 1)}, play.now)
    assert play.member.events() == []
    assert play.say(beat, assignment=told("one/0", "one/1")) == []
    assert play.member.held == tps("one/0", "one/1")


def test_name_that_is_learnt_while_a_heartbeat_tells_nothing_brings_the_partition_at_once() -> None:
    """The coordinator goes on to take what was owned for owned."""
    play = joined("one/0")
    play.answer(play.later(), "one/0", "new/0")
    play.say(play.poll())
    beat = play.later()
    assert beat.owned is None
    play.member.metadata_changed({**TOPICS, "new": TopicInfo(NEW, 1)}, play.now)
    assert play.member.events() == [Assigned(tps("new/0"))]


def test_name_that_is_learnt_before_a_good_answer_brings_the_partition_with_it() -> None:
    """Neither says anything about the assignment: it stands. One that fails proves nothing."""
    play = joined("one/0")
    play.answer(play.later(), "one/0", "one/1", "new/0")
    beat = play.poll()
    play.member.metadata_changed({**TOPICS, "new": TopicInfo(NEW, 1)}, play.now)
    assert play.fail(beat) == [CoordinatorLost()]
    play.member.metadata_changed({**TOPICS, "new": TopicInfo(NEW, 2)}, play.now)
    assert play.member.events() == []
    assert play.say(play.later()) == [Assigned(tps("new/0"))]


def test_drain_counts_from_the_last_answer_before_a_late_heartbeat() -> None:
    """That may have taken the partition away right after it, though the answer that says so comes an interval later."""
    play = joined("one/0", rebalance_timeout=8.0)
    assert play.member.held_until == play.now + SESSION
    play.fail(play.later())
    play.say(play.later(), assignment=told("one/0"))
    since = play.now
    assert play.member.held_until == since + 8.0
    assert play.say(play.later(), assignment={}) == [Revoked(tps("one/0"))]
    assert play.now == since + INTERVAL
    assert play.member.held_until == since + 8.0


@pytest.mark.parametrize("interval, session", [(5.0, 15.0), (1.0, 3.0), (60.0, SESSION)])
def test_session_that_nobody_may_know_is_taken_as_three_intervals(
    interval: float, session: float
) -> None:
    """The coordinator's own is longer than one interval; by its defaults it is nine, and 45 s."""
    play = Play(session_timeout=None)
    play.say(play.poll(), epoch=1, interval=interval, assignment=told("one/0"))
    assert play.member.held_until == play.now + session


def test_session_that_is_changed_counts_from_the_last_heartbeat() -> None:
    """It may be over with that."""
    play = joined("one/0")
    began = play.now
    play.member.session_is(6.0)
    assert play.member.held_until == began + 6.0
    play.now += 10
    assert play.member.held_until < play.now
    play.say(play.later())
    assert play.member.held_until == play.now + 6.0


def test_answer_of_another_request_is_a_mistake() -> None:
    """Of the caller's."""
    play = Play()
    with pytest.raises(TypeError, match="no answer like"):
        play.member.answered(play.poll(), HeartbeatAnswer(0), play.now)


# -- static members -------------------------------------------------------------------------------


def test_instance_id_of_another_member_is_waited_for(caplog: pytest.LogCaptureFixture) -> None:
    """It is free once that one's session has ended; the log says so once."""
    play = Play(instance_id="i")
    request, waits = play.poll(), []
    with caplog.at_level(logging.WARNING):
        for _ in range(5):
            assert play.say(request, UNRELEASED) == []
            waits.append(round(play.member.wake_at() - play.now, 3))
            request = play.later()
            assert (request.epoch, request.instance_id) == (0, "i")
    assert waits == [0.1, 0.2, 0.4, 0.8, 1.0]
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert play.answer(request, "one/0") == [Assigned(tps("one/0"))]


@pytest.mark.parametrize("session, longest", [(SESSION, SESSION), (6.0, 6.0), (None, 60.0)])
def test_instance_id_of_a_member_that_lives_is_refused_after_a_session(
    session: float | None, longest: float
) -> None:
    """A predecessor that was killed would be out by then; where the session is not known, the longest counts."""
    play = Play(instance_id="i", session_timeout=session)
    request, began, events = play.poll(), play.now, list[Event]()
    while not (events := play.say(request, UNRELEASED)):
        assert play.now < began + longest + 2
        request = play.later()
    assert began + longest < play.now < began + longest + 2
    assert events == [Refused(UNRELEASED, "why")]
    assert play.member.has_left


def test_wait_for_an_instance_id_begins_anew_with_each_membership() -> None:
    """It was ours in between."""
    play = Play(instance_id="i", session_timeout=6.0)
    assert play.say(play.poll(), UNRELEASED) == []
    assert play.answer(play.later(), "one/0") == [Assigned(tps("one/0"))]
    play.now += 60
    play.say(play.later(), UNKNOWN)
    assert play.say(play.later(), UNRELEASED) == []


@pytest.mark.parametrize("error", [0, UNKNOWN, INSTANCE_FENCED, NO_GROUP])
def test_static_member_whose_join_was_not_answered_frees_its_instance_id(error: int) -> None:
    """The coordinator may know it already, and would refuse it as if it were another member."""
    play = Play(instance_id="i")
    play.fail(play.poll())
    leave = play.later()
    assert (leave.epoch, leave.instance_id, leave.topics) == (-2, "i", None)
    assert play.say(leave, error) == []
    assert play.poll().epoch == 0


def test_fenced_static_member_frees_its_instance_id() -> None:
    """The coordinator knows it by another epoch."""
    play = joined("one/0", instance_id="i")
    play.say(play.later(), FENCED)
    leave = play.later()
    assert leave.epoch == -2
    assert play.say(leave, LOADING) == []
    leave = play.later()
    assert leave.epoch == -2
    play.say(leave)
    assert play.poll().epoch == 0


def test_unknown_static_member_has_nothing_to_free() -> None:
    """It joins."""
    play = joined("one/0", instance_id="i")
    play.say(play.later(), UNKNOWN)
    assert play.later().epoch == 0


# -- leaving --------------------------------------------------------------------------------------


@pytest.mark.parametrize("instance, epoch", [(None, -1), ("i", -2)])
def test_leave_is_sent_at_once(instance: str | None, epoch: int) -> None:
    """A static member will come back, and keeps its place."""
    play = joined("one/0", instance_id=instance)
    play.member.leave(play.now)
    assert (play.member.held, play.member.epoch, play.member.has_left) == (frozenset(), -1, False)
    assert play.member.held_until == -math.inf
    leave = play.poll()
    assert leave == ConsumerHeartbeat("g", "me", epoch, instance)
    assert play.say(leave, epoch=epoch) == []
    assert (play.member.has_left, play.member.wake_at()) == (True, math.inf)
    play.member.leave(play.now)
    assert play.member.has_left


@pytest.mark.parametrize("error", [UNKNOWN, NO_GROUP, INSTANCE_FENCED, 30])
def test_who_is_no_member_has_left(error: int) -> None:
    """Whatever the coordinator says of it."""
    play = joined("one/0")
    play.member.leave(play.now)
    assert play.say(play.poll(), error) == []
    assert play.member.has_left


def test_leave_is_tried_until_the_session_has_ended() -> None:
    """After that the coordinator has forgotten the member by itself."""
    play = joined("one/0")
    play.member.leave(play.now)
    begun, request = play.now, play.poll()
    assert play.say(request, NOT_COORDINATOR) == [CoordinatorLost()]
    while not play.member.has_left:
        request = play.later()
        assert request.epoch == -1
        play.fail(request)
        if play.member.wake_at() >= begun + SESSION:
            assert play.member.poll(play.member.wake_at()) is None
    assert play.member.has_left


def test_leave_is_not_sent_once_the_session_is_over() -> None:
    """To the moment."""
    for late in (-0.5, 0.0):
        play = joined("one/0")
        play.member.leave(play.now)
        play.now += SESSION + late
        assert (play.member.poll(play.now) is None) == (late == 0)
        assert play.member.has_left == (late == 0)


def test_member_that_never_joined_has_left() -> None:
    """There is nothing to send."""
    play = Play()
    play.member.leave(play.now)
    assert play.member.has_left


@pytest.mark.parametrize(
    "outcome", ["well", "fails", "unknown", "fenced", "unreleased", "refused", "loading"]
)
def test_leave_waits_for_the_join_and_assigns_nothing(outcome: str) -> None:
    """The join may have been carried out: its answer is waited for, and assigns nothing."""
    play = Play()
    join = play.poll()
    play.member.leave(play.now)
    assert play.member.poll(play.now) is None
    does: dict[str, Callable[[], list[Event]]] = {
        "well": lambda: play.answer(join, "one/0"),
        "fails": lambda: play.fail(join),
        "unknown": lambda: play.say(join, UNKNOWN),
        "fenced": lambda: play.say(join, FENCED),
        "unreleased": lambda: play.say(join, UNRELEASED),
        "refused": lambda: play.say(join, 128),
        "loading": lambda: play.say(join, LOADING),
    }
    assert does[outcome]() == ([CoordinatorLost()] if outcome == "fails" else [])
    assert play.member.held == frozenset()
    if outcome in ("unknown", "refused"):
        assert play.member.has_left
    elif outcome in ("well", "fenced", "unreleased"):
        assert play.poll().epoch == -1
    else:
        assert play.later().epoch == -1


def test_fenced_member_leaves_and_an_unknown_one_has_left() -> None:
    """A fenced member is known by another epoch, and leaves; an unknown one has left."""
    play = joined("one/0")
    play.say(play.later(), FENCED)
    play.member.leave(play.now)
    assert play.later().epoch == -1
    play = joined("one/0")
    play.say(play.later(), UNKNOWN)
    play.member.leave(play.now)
    assert play.member.has_left


def test_answer_after_leave_assigns_nothing() -> None:
    """Metadata and drains neither."""
    play = joined("one/0")
    beat = play.later()
    play.member.leave(play.now)
    assert play.answer(beat, "one/0", "one/1", "new/0") == []
    play.member.metadata_changed({"new": TopicInfo(NEW, 1)}, play.now)
    assert play.release("one/0") == []
    assert (play.member.held, play.poll().epoch) == (frozenset(), -1)


# -- any answers in any order -----------------------------------------------------------------------

SLOTS = st.frozensets(st.sampled_from(["one/0", "one/1", "two/0", "two/1", "new/0"]))
ERRORS = [-1, LOADING, NOT_AVAILABLE, NOT_COORDINATOR, UNKNOWN, FENCED, UNRELEASED, STALE]


class AnyAnswers(RuleBasedStateMachine):
    """An owner that follows the events, and a coordinator that may answer anything."""

    sent = Bundle("sent")

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.under_way: ConsumerHeartbeat | None = None
        self.owned: set[TopicPartition] = set()
        self.draining: set[TopicPartition] = set()
        self.target: frozenset[TopicPartition] = frozenset()
        self.has_asked_to_leave = False
        self.sent_at = 0.0

    @initialize(static=st.booleans())
    def begin(self, *, static: bool) -> None:
        self.member = ConsumerMember(
            *("g",), topics=["one", "two"], rebalance_timeout=60.0,
            instance_id="i" if static else None, member_id="me",
        )  # fmt: skip
        self.member.metadata_changed(TOPICS, self.now)

    def follow(self) -> None:
        """Does what the events say, and objects to what makes no sense."""
        for event in self.member.events():
            if isinstance(event, Assigned):
                assert event.tps, "assigns nothing"
                assert not event.tps & self.owned, "assigned twice"
                self.owned |= event.tps
            elif isinstance(event, Revoked):
                assert event.tps <= self.owned, "revokes what is not held"
                assert not event.tps & self.draining, "revoked twice"
                self.draining |= event.tps
            elif isinstance(event, Lost):
                assert event.tps == self.owned, "loses all or nothing"
                self.owned, self.draining = set(), set()
                self.target = frozenset()

    @rule(target=sent, wait=st.sampled_from([0.0, 1.0, 5.0, 5.0, 60.0]))
    def poll(self, wait: float) -> Any:
        self.now += wait
        request = self.member.poll(self.now)
        if request is None:
            return multiple()
        assert isinstance(request, ConsumerHeartbeat)
        assert self.under_way is None, "two requests under way"
        assert not self.has_asked_to_leave or request.epoch < 0, "no heartbeat after leaving"
        self.under_way, self.sent_at = request, self.now
        return request

    @precondition(lambda self: self.under_way is not None)
    @rule(
        wait=st.sampled_from([0.0, 0.0, 1.0, 60.0]),
        epoch=st.integers(1, 9), slots=st.none() | SLOTS,
    )  # fmt: skip
    def answer_well(self, wait: float, epoch: int, slots: frozenset[str] | None) -> None:
        request = self.under_way
        assert request is not None
        self.now += wait
        slots = frozenset() if slots is None and request.epoch == 0 else slots
        assignment = None if slots is None else told(*slots)
        answer = ConsumerHeartbeatAnswer(0, epoch=epoch, interval=5.0, assignment=assignment)
        counts = request.epoch >= 0 and not self.has_asked_to_leave
        if counts and self.now < self.sent_at + SESSION and slots is not None:
            self.target = tps(*slots)
        self.member.answered(request, answer, self.now)
        self.ended()

    @precondition(lambda self: self.under_way is not None)
    @rule(error=st.sampled_from(ERRORS))
    def answer_badly(self, error: int) -> None:
        assert self.under_way is not None
        self.member.answered(self.under_way, ConsumerHeartbeatAnswer(error, "why"), self.now)
        self.ended()

    @precondition(lambda self: self.under_way is not None)
    @rule()
    def answer_never(self) -> None:
        assert self.under_way is not None
        self.member.failed(self.under_way, self.now)
        self.ended()

    @precondition(lambda self: self.under_way is None and not self.member.has_left)
    @rule(epoch=st.integers(1, 9), slots=st.lists(SLOTS, min_size=1, max_size=4))
    def live(self, epoch: int, slots: list[frozenset[str]]) -> None:
        """Some requests, each when it is due and answered well."""
        for each in slots:
            if self.member.has_left:
                break
            self.now = max(self.now, self.member.wake_at())
            self.poll(0.0)
            if self.under_way is not None:
                self.answer_well(0.0, epoch, each)

    @rule(request=sent, error=st.sampled_from([0, UNKNOWN]))
    def answer_twice(self, request: ConsumerHeartbeat, error: int) -> None:
        """An old one; or it comes late."""
        if request is not self.under_way:
            answer = ConsumerHeartbeatAnswer(error, epoch=5, assignment=told("new/0", "two/1"))
            self.member.answered(request, answer, self.now)
            self.member.failed(request, self.now)
            assert self.member.events() == []

    def ended(self) -> None:
        self.under_way = None
        self.follow()

    @rule(data=st.data())
    def drained(self, data: st.DataObject) -> None:
        """Some of it, or what was never revoked at all."""
        some = frozenset(
            data.draw(st.sets(st.sampled_from(sorted(tps("one/0", "two/0", "two/1")))))
        )
        self.owned -= some & self.draining
        self.draining -= some
        self.member.released(some, self.now)
        self.follow()

    @rule(has_new=st.booleans(), has_one=st.booleans())
    def metadata_change(self, *, has_new: bool, has_one: bool) -> None:
        topics = {"two": TOPICS["two"]}
        topics |= {"new": TopicInfo(NEW, 1)} if has_new else {}
        topics |= {"one": TOPICS["one"]} if has_one else {}
        self.member.metadata_changed(topics, self.now)
        self.follow()

    @precondition(lambda self: self.now > 300.0)
    @rule()
    def leave(self) -> None:
        self.member.leave(self.now)
        self.has_asked_to_leave = True
        self.owned, self.draining = set(), set()
        self.follow()

    @invariant()
    def holds_what_its_owner_was_told(self) -> None:
        if not hasattr(self, "member"):
            return
        assert self.member.held == self.owned
        assert self.owned - self.draining <= self.target, "owns what it was not assigned"

    @invariant()
    def goes_on(self) -> None:
        """While nothing is under way there is a time for the next request, and it is soon."""
        if hasattr(self, "member") and not self.member.has_left and self.under_way is None:
            assert self.member.wake_at() <= self.now + 5.0


TestAnyAnswers = AnyAnswers.TestCase


# -- a real Kafka -----------------------------------------------------------------------------------


class Runner:
    """Drives a member against a real coordinator, as fast as that answers, and drains when it is told to."""

    def __init__(self, line: Line, member: ConsumerMember, topics: dict[str, TopicInfo]) -> None:
        self.line, self.member, self.topics = line, member, topics
        self.now = 0.0  # it jumps to when the next request is due
        self.told: list[Event] = []
        self.draining: set[TopicPartition] = set()

    async def step(self) -> None:
        """One request."""
        self.now = max(self.now, self.member.wake_at())
        request = self.member.poll(self.now)
        assert isinstance(request, ConsumerHeartbeat)
        self.member.answered(request, await self.line.ask(request), self.now)
        if self.member.unknown_topic_ids:
            self.member.metadata_changed(self.topics, self.now)
        for event in self.member.events():
            self.told.append(event)
            self.draining |= event.tps if isinstance(event, Revoked) else set()

    def drain(self) -> None:
        """The owner has finished."""
        self.member.released(frozenset(self.draining), self.now)
        self.draining = set()


async def until(condition: Callable[[], object], *runners: Runner) -> None:
    """Has the members live until then."""
    while not condition():
        for runner in runners:
            await runner.step()
        await asyncio.sleep(0.02)  # targets are made in the background


@pytest.mark.kafka
async def test_partition_moves_to_a_second_member_and_back(harness: KafkaHarness) -> None:
    """The first goes on with what it keeps; the second gets nothing before the first has drained and said so."""
    topic = await harness.create_stream(2)
    group, everything = f"move-{harness.uid}", tps(f"{topic}/0", f"{topic}/1")
    async with line_to(harness.servers, group) as line:
        topics = {topic: TopicInfo(await line.topic_id(topic), 2)}
        one, two = (
            Runner(line, ConsumerMember(group, topics=[topic], rebalance_timeout=60.0), topics)
            for _ in range(2)
        )
        await until(lambda: one.member.held == everything, one)
        await until(lambda: one.draining, one, two)
        moved = frozenset(one.draining)
        assert one.told == [Assigned(everything), Revoked(moved)]
        assert (len(moved), one.member.held, two.member.held) == (1, everything, frozenset())
        for _ in range(3):
            await one.step()
            await two.step()
        assert (one.member.held, two.told) == (everything, [])

        one.drain()
        await until(lambda: two.member.held, one, two)
        assert (one.member.held, two.member.held) == (everything - moved, moved)
        assert len(one.told) == 2
        for runner in (one, two):
            await commits(runner, group, *runner.member.held)

        two.drain()
        two.member.leave(two.now)
        await until(lambda: two.member.has_left, two)
        await until(lambda: one.member.held == everything, one)
        assert one.told[2:] == [Assigned(moved)]
        one.member.leave(one.now)
        await until(lambda: one.member.has_left, one)


async def commits(runner: Runner, group: str, tp: TopicPartition) -> None:
    """With its epoch of now, as the broker confirms."""
    request = OffsetCommitByName(
        *(group, runner.member.epoch, runner.member.member_id, None),
        {tp.topic: [OffsetEntry(tp.partition, 5)]},
    )
    assert (await runner.line.send(request)).topics == [(tp.topic, [(tp.partition, 0)])]


@pytest.mark.kafka
async def test_static_member_whose_join_answer_was_lost_joins_again(harness: KafkaHarness) -> None:
    """The broker would refuse its id for a session, if it were not given back first."""
    topic = await harness.create_stream(1)
    group = f"static-{harness.uid}"
    async with line_to(harness.servers, group) as line:
        topics = {topic: TopicInfo(await line.topic_id(topic), 1)}
        member = ConsumerMember(group, topics=[topic], rebalance_timeout=60.0, instance_id="i")
        lost = member.poll(0.0)
        assert lost is not None
        assert (await line.ask(lost)).error == 0
        assert (await line.ask(lost)).error == UNRELEASED
        member.failed(lost, 0.0)
        runner = Runner(line, member, topics)
        await until(lambda: member.held == tps(f"{topic}/0"), runner)
        assert not any(isinstance(event, Lost | Refused) for event in runner.told)
        member.leave(runner.now)
        await until(lambda: member.has_left, runner)


@pytest.mark.kafka
async def test_group_of_another_type_refuses_the_member(harness: KafkaHarness) -> None:
    """A classic group is taken over where its members are consumers; where they are not, the broker says why."""
    group = f"connect-{harness.uid}"
    foreign = JoinGroupRequest(group, 30_000, 60_000, "", None, "connect", [("x", b"y")])
    async with line_to(harness.servers, group) as line:
        while (found := await line.send(foreign)).error_code != MEMBER_ID_REQUIRED:
            assert found.error_code in TRANSIENT
        foreign._member_id = found.member_id
        assert (await line.send(foreign)).error_code == 0
        member = ConsumerMember(group, topics=["t"], rebalance_timeout=60.0)
        runner = Runner(line, member, {})
        await runner.step()
        (refused,) = runner.told
        assert isinstance(refused, Refused)
        assert (refused.error, group in refused.message) == (NO_GROUP, True)
