"""One classic member, told answer by answer."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import TypeVar

import pytest

from consumer_sdk.adapters.kafka.groups.assignors import (
    Assignor,
    CooperativeStickyAssignor,
    RangeAssignor,
    RoundRobinAssignor,
    StickyAssignor,
)
from consumer_sdk.adapters.kafka.groups.classic_member import ClassicMember
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
    Answer,
    Heartbeat,
    HeartbeatAnswer,
    JoinAnswer,
    JoinGroup,
    LeaveAnswer,
    LeaveGroup,
    Request,
    SyncAnswer,
    SyncGroup,
)
from consumer_sdk.adapters.kafka.groups.subscriptions import (
    Assignment,
    Subscription,
    read_assignment,
    read_claims,
    read_subscription,
    write_assignment,
    write_subscription,
)
from tests.adapters.kafka.groups.java_groups import partitions

SESSION, INTERVAL, REBALANCE = 10.0, 3.0, 60.0
RETRIABLE = (14, 15, 16, 7, 13, 19, 20, 56, 89)
FINAL = (23, 24, 26, 30, 35, 81, 82, -1)

R = TypeVar("R", bound=Request)


class Play:
    """A member, its clock, and what it has told so far."""

    def __init__(
        self,
        *assignors: Assignor,
        instance: str | None = None,
        topics: str = "t:4",
        rebalance: float = REBALANCE,
    ) -> None:
        self.now = 100.0
        self.member = ClassicMember(
            "g",
            assignors or (CooperativeStickyAssignor(),),
            instance_id=instance,
            session_timeout=SESSION,
            rebalance_timeout=rebalance,
            heartbeat_interval=INTERVAL,
        )
        self.tell(topics)

    def tell(self, topics: str) -> None:
        """What the cluster has: ``topic:partitions,…``."""
        self.member.metadata_changed(infos(topics), self.now)

    def asks(self, kind: type[R]) -> R:
        """The next request, which has to be one of these."""
        request = self.member.poll(self.now)
        assert isinstance(request, kind), request
        assert self.member.poll(self.now) is None, "two at once"
        return request

    def answer(self, kind: type[R], answer: Answer) -> R:
        """The next request, answered at once."""
        request = self.asks(kind)
        self.member.answered(request, answer, self.now)
        return request

    def join(self, generation: int = 1, protocol: str = "cooperative-sticky") -> JoinGroup:
        """Follows another leader; a static member that has no id yet heartbeats before its sync."""
        request = self.answer(JoinGroup, JoinAnswer(0, generation, protocol, "leader", "me"))
        if request.instance_id is not None and not request.member_id:
            self.beat()
        return request

    def sync(self, tps: str) -> SyncGroup:
        """Is given these."""
        return self.answer(SyncGroup, SyncAnswer(0, write_assignment(Assignment(partitions(tps)))))

    def start(self, tps: str = "t:0,t:1", protocol: str = "cooperative-sticky") -> None:
        """Becomes a member that holds these."""
        self.join(protocol=protocol)
        self.sync(tps)
        assert self.events() == [Assigned(partitions(tps))]

    def beat(self, error: int = 0) -> None:
        """The next heartbeat, answered."""
        self.now = max(self.now, self.member.wake_at())
        self.answer(Heartbeat, HeartbeatAnswer(error))

    def release(self, tps: str) -> None:
        """The owner has drained."""
        self.member.released(partitions(tps), self.now)

    def events(self) -> list[Event]:
        """What has happened since."""
        return self.member.events()


def infos(topics: str) -> dict[str, TopicInfo]:
    """By name."""
    return {tp.topic: TopicInfo(tp.topic.encode(), tp.partition) for tp in partitions(topics)}


def said(request: JoinGroup, protocol: str = "cooperative-sticky") -> Subscription:
    """What a join tells the leader."""
    return read_subscription(dict(request.protocols)[protocol], "me")


def names(events: Iterable[Event]) -> list[str]:
    """Their kinds."""
    return [type(event).__name__ for event in events]


# -- joining --------------------------------------------------------------------------------------


def test_member_asks_nothing_before_it_knows_its_topics() -> None:
    """There is nothing to subscribe to."""
    member = ClassicMember(
        "g", [RangeAssignor()], session_timeout=9, rebalance_timeout=9, heartbeat_interval=3
    )
    assert (member.poll(0.0), member.wake_at()) == (None, math.inf)
    assert (member.member_id, member.epoch, member.held_until) == ("", -1, math.inf)
    assert (member.unknown_topic_ids, member.has_left) == (frozenset(), False)
    assert member.group_topics == frozenset()
    member.metadata_changed(infos("t:1"), 5.0)
    assert member.wake_at() == 5.0


def test_first_join_says_who_it_is_and_what_it_wants() -> None:
    """Each assignor has a subscription of its own, in the order of preference."""
    play = Play(RangeAssignor(), CooperativeStickyAssignor(), instance="i", topics="t:4,u:1")
    assert play.member.wake_at() == play.now
    join = play.asks(JoinGroup)
    assert (join.group, join.member_id, join.instance_id) == ("g", "", "i")
    assert (join.session_timeout, join.rebalance_timeout) == (SESSION, REBALANCE)
    assert [name for name, _ in join.protocols] == ["range", "cooperative-sticky"]
    assert said(join, "range") == Subscription(frozenset({"t", "u"}))


def test_member_id_that_is_given_is_used_at_once() -> None:
    """KIP-394."""
    play = Play()
    play.answer(JoinGroup, JoinAnswer(79, member_id="me"))
    assert play.asks(JoinGroup).member_id == "me"


def test_follower_is_given_its_part() -> None:
    """Commits carry the generation from then on."""
    play = Play()
    play.join(7)
    assert (play.member.member_id, play.member.epoch, play.member.held) == ("me", 7, frozenset())
    sync = play.sync("t:0")
    assert (sync.generation, sync.protocol, sync.assignments) == (7, "cooperative-sticky", ())
    assert play.events() == [Assigned(partitions("t:0"))]
    assert play.member.held == partitions("t:0")
    assert play.member.wake_at() == play.now + INTERVAL


def test_member_may_be_given_nothing() -> None:
    """The group has more members than partitions, or the leader has left it out."""
    play = Play()
    play.join()
    play.answer(SyncGroup, SyncAnswer(0, b""))
    assert play.events() == []
    play.beat()


class Told(RangeAssignor):
    """Remembers what it was told; shares nothing out."""

    def __init__(self) -> None:
        self.told: list[tuple[Assignment, int]] = []

    def assign(self, *_: object) -> dict[str, Assignment]:
        raise AssertionError("the leader shares out")

    def assigned(self, assignment: Assignment, generation: int) -> None:
        self.told.append((assignment, generation))


def test_assignor_of_a_follower_is_told_what_it_was_given() -> None:
    """It may tell the next leader; the leader of now shares out alone."""
    play = Play(assignor := Told())
    play.join(7, protocol="range")
    assert play.sync("t:0").assignments == ()
    assert assignor.told == [(Assignment(partitions("t:0")), 7)]


def leads(play: Play, *others: tuple[str, Subscription], generation: int = 1) -> None:
    """The member is made the leader."""
    own = play.asks(JoinGroup)
    members = [("me", None, own.protocols[0][1])]
    members += [(name, None, write_subscription(sub)) for name, sub in others]
    answer = JoinAnswer(0, generation, own.protocols[0][0], "me", "me", tuple(members))
    play.member.answered(own, answer, play.now)


def parts(sync: SyncGroup) -> dict[str, frozenset[TopicPartition]]:
    """What the leader gives out."""
    return {name: read_assignment(data, name).partitions for name, data in sync.assignments}


def test_leader_shares_out_with_the_assignor_that_was_chosen() -> None:
    """Each member's part goes with its SyncGroup."""
    play = Play(RangeAssignor())
    leads(play, ("other", Subscription(frozenset({"t"}))))
    shares = parts(play.asks(SyncGroup))
    assert shares == {"me": partitions("t:0,t:1"), "other": partitions("t:2,t:3")}


def test_leader_asks_for_topics_of_others_first() -> None:
    """Heartbeats go on while the cluster is asked."""
    play = Play(RangeAssignor())
    leads(play, ("other", Subscription(frozenset({"t", "u", "gone"}))))
    assert play.member.group_topics == {"u", "gone"}
    assert play.member.poll(play.now) is None
    play.beat()
    play.member.group_metadata_changed({**infos("u:2"), "gone": None}, play.now)
    assert play.member.wake_at() <= play.now
    assert parts(play.asks(SyncGroup))["other"] == partitions("t:2,t:3,u:0,u:1")


def test_leader_that_came_back_assigns_nothing() -> None:
    """A static one's group goes on as it was (KIP-814)."""
    play = Play(RangeAssignor(), instance="i")
    own = play.asks(JoinGroup)
    members = (("me", "i", own.protocols[0][1]),)
    answer = JoinAnswer(0, 4, "range", "me", "me", members, skip_assignment=True)
    play.member.answered(own, answer, play.now)
    play.beat()
    assert play.asks(SyncGroup).assignments == ()


def test_cooperative_leader_that_came_back_joins_once_more() -> None:
    """It does not know what was given to whom; its predecessor may have been about to give something up."""
    play = Play(instance="i")
    own = play.asks(JoinGroup)
    members = (("me", "i", own.protocols[0][1]),)
    answer = JoinAnswer(0, 4, "cooperative-sticky", "me", "me", members, skip_assignment=True)
    play.member.answered(own, answer, play.now)
    play.beat()
    play.sync("t:0")
    again = play.asks(JoinGroup)
    assert said(again).owned == partitions("t:0")
    members = (("me", "i", again.protocols[0][1]),)
    answer = JoinAnswer(0, 5, "cooperative-sticky", "me", "me", members)
    play.member.answered(again, answer, play.now)
    assert parts(play.sync("t:0,t:1,t:2,t:3")) == {"me": partitions("t:0,t:1,t:2,t:3")}
    assert play.member.poll(play.now) is None


def test_eager_leader_that_came_back_to_a_cooperative_assignor_joins_once_more() -> None:
    """During an upgrade it knows both; what its predecessor has withheld would be nobody's."""
    play = Play(CooperativeStickyAssignor(), RangeAssignor(), instance="i")
    own = play.asks(JoinGroup)
    members = (("me", "i", own.protocols[0][1]),)
    answer = JoinAnswer(0, 4, "cooperative-sticky", "me", "me", members, skip_assignment=True)
    play.member.answered(own, answer, play.now)
    play.beat()
    play.sync("t:0")
    assert names(play.events()) == ["Assigned", "Revoked"]
    play.release("t:0")
    play.asks(JoinGroup)


@pytest.mark.parametrize(
    "assignor, others, given, is_other",
    [
        (RangeAssignor(), [], "t:0,t:1,t:2,t:3", False),
        (RangeAssignor(), [], "t:0,t:1", True),  # two partitions have come
        (RangeAssignor(), [], "t:0,t:1,t:2,t:3,u:0", True),  # the predecessor had a topic more
        (RangeAssignor(), ["z"], "t:0,t:1", False),
        (RoundRobinAssignor(), ["z"], "t:0,t:2", False),
        (RoundRobinAssignor(), ["z"], "t:0,t:1,t:2", True),
        (RangeAssignor(), ["z"], "t:0,t:1,t:2,t:3", True),
        (StickyAssignor(), [], "t:0,t:1", True),
        (StickyAssignor(), ["z"], "t:0,t:1,t:2", False),  # it depends on what they had
    ],
)
def test_eager_leader_that_came_back_joins_once_more_if_it_would_give_itself_something_else(
    assignor: Assignor, others: list[str], given: str, *, is_other: bool
) -> None:
    """Its topics may be others than its predecessor's, and nobody else looks for what is new."""
    play = Play(assignor, instance="i")
    own = play.asks(JoinGroup)
    members = tuple((name, name, own.protocols[0][1]) for name in ["i", *others])
    answer = JoinAnswer(0, 4, assignor.name, "i", "i", members, skip_assignment=True)
    play.member.answered(own, answer, play.now)
    play.beat()
    play.sync(given)
    held = ",".join(f"{tp.topic}:{tp.partition}" for tp in sorted(play.member.held))
    assert names(play.events()) == ["Assigned", "Revoked"][: 1 + is_other]
    if is_other:
        play.release(held)
        play.asks(JoinGroup)
    else:
        assert play.member.poll(play.now) is None


@pytest.mark.parametrize("also", [[], [RangeAssignor()]], ids=["cooperative", "upgrade"])
@pytest.mark.parametrize("instance", ["i", None])
def test_leader_looks_again_for_what_a_static_member_was_to_give_up(
    instance: str | None, also: list[Assignor]
) -> None:
    """A dynamic one joins again, or its session ends; a static one may be gone, and come back without a rebalance."""
    play = Play(CooperativeStickyAssignor(), *also)
    own = play.asks(JoinGroup)
    claim = Subscription(frozenset({"t"}), owned=partitions("t:0,t:1,t:2,t:3"), generation=1)
    members = (
        ("me", None, own.protocols[0][1]),
        ("other", instance, write_subscription(claim)),
    )
    answer = JoinAnswer(0, 2, "cooperative-sticky", "me", "me", members)
    play.member.answered(own, answer, play.now)
    nothing = SyncAnswer(0, write_assignment(Assignment()))
    assert not parts(play.answer(SyncGroup, nothing))["me"]
    end = play.now + REBALANCE
    while play.member.wake_at() < end:
        play.beat()
    play.now = end
    asked = play.member.poll(play.now)
    assert isinstance(asked, JoinGroup if instance is not None else Heartbeat)


def test_leader_that_is_to_look_again_does_not_wake_for_nothing() -> None:
    """The coordinator may be away just then."""
    play = Play()
    own = play.asks(JoinGroup)
    claim = Subscription(frozenset({"t"}), owned=partitions("t:0,t:1,t:2,t:3"), generation=1)
    members = (("me", None, own.protocols[0][1]), ("other", "i", write_subscription(claim)))
    joined = JoinAnswer(0, 2, "cooperative-sticky", "me", "me", members)
    play.member.answered(own, joined, play.now)
    play.answer(SyncGroup, SyncAnswer(0, write_assignment(Assignment())))
    end = play.now + REBALANCE
    while play.member.wake_at() < end - INTERVAL:
        play.beat()
    play.now = play.member.wake_at()
    asked = play.asks(Heartbeat)
    play.now = end - 0.01
    play.member.failed(asked, play.now)
    assert play.member.poll(end) is None
    play.now = play.member.wake_at()
    assert play.now > end
    play.asks(JoinGroup)


def withholds(play: Play) -> None:
    """The member leads, and a static one has to give something up first."""
    own = play.asks(JoinGroup)
    claim = Subscription(frozenset({"t"}), owned=partitions("t:0,t:1,t:2,t:3"), generation=1)
    members = (("me", None, own.protocols[0][1]), ("other", "i", write_subscription(claim)))
    joined = JoinAnswer(0, 2, "cooperative-sticky", "me", "me", members)
    play.member.answered(own, joined, play.now)
    play.answer(SyncGroup, SyncAnswer(0, write_assignment(Assignment())))


def test_leader_that_is_refused_looks_for_nothing_again() -> None:
    """It has ended, and its owner would be woken without end."""
    play = Play()
    withholds(play)
    play.beat(30)
    assert names(play.events()) == ["Refused"]
    assert play.member.wake_at() == math.inf
    play.now += REBALANCE
    assert (play.member.poll(play.now), play.member.wake_at()) == (None, math.inf)


def test_leader_that_has_joined_again_looks_for_nothing_again() -> None:
    """Whoever leads by then knows what is withheld."""
    play = Play()
    withholds(play)
    end = play.now + REBALANCE
    play.beat(27)
    play.join(3)
    play.sync("t:0")
    while play.now <= end + REBALANCE:
        play.beat()


def test_leader_that_withholds_nothing_does_not_look_again() -> None:
    """Though one of the members is static."""
    play = Play()
    own = play.asks(JoinGroup)
    other = write_subscription(Subscription(frozenset({"t"})))
    members = (("me", None, own.protocols[0][1]), ("other", "i", other))
    joined = JoinAnswer(0, 2, "cooperative-sticky", "me", "me", members)
    play.member.answered(own, joined, play.now)
    assert set(map(len, parts(play.sync("t:0,t:1")).values())) == {2}
    end = play.now + REBALANCE
    while play.now <= end:
        play.beat()


def test_leader_that_came_back_joins_again_when_its_topics_grow() -> None:
    """It counts from when it came back: its predecessor has shared out what there was."""
    play = Play(RangeAssignor(), instance="i")
    own = play.asks(JoinGroup)
    members = (("i", "i", own.protocols[0][1]), ("z", "z", own.protocols[0][1]))
    answer = JoinAnswer(0, 4, "range", "i", "i", members, skip_assignment=True)
    play.member.answered(own, answer, play.now)
    play.beat()
    play.sync("t:0,t:1")
    play.events()
    play.tell("t:4")
    assert play.events() == []
    play.tell("t:5")
    assert play.events() == [Revoked(partitions("t:0,t:1"))]


def test_leader_asks_anew_for_a_topic_that_comes_back() -> None:
    """It may have grown meanwhile; what stays is not asked for again."""
    play = Play()
    for generation, topics, is_asked in (
        (1, "t,u", True),
        (2, "t,u", False),
        (3, "t", False),
        (4, "t,u", True),
    ):
        own = play.asks(JoinGroup)
        other = write_subscription(Subscription(frozenset(topics.split(","))))
        members = (("me", None, own.protocols[0][1]), ("other", None, other))
        answer = JoinAnswer(0, generation, "cooperative-sticky", "me", "me", members)
        play.member.answered(own, answer, play.now)
        sync = play.member.poll(play.now)
        assert (sync is None) == is_asked
        if sync is None:
            play.member.group_metadata_changed(infos("u:2"), play.now)
            sync = play.asks(SyncGroup)
        assert isinstance(sync, SyncGroup)
        data = write_assignment(Assignment(partitions("t:0")))
        play.member.answered(sync, SyncAnswer(0, data), play.now)
        play.beat(27)


def test_topics_that_grow_while_the_leader_joins_need_no_further_join() -> None:
    """Whoever leads then looks at the partitions of then."""
    play = Play()
    leads(play)
    play.sync("t:0")
    play.tell("t:5")
    join = play.asks(JoinGroup)
    play.tell("t:6")
    answer = JoinAnswer(0, 2, "cooperative-sticky", "other", "me")
    play.member.answered(join, answer, play.now)
    play.sync("t:0")
    play.beat()


def test_unreadable_member_is_named_by_the_leader() -> None:
    """Nobody can share out then."""
    play = Play()
    own = play.asks(JoinGroup)
    members = (("me", None, own.protocols[0][1]), ("m-7", None, b"\0"))
    play.member.answered(own, JoinAnswer(0, 1, "cooperative-sticky", "me", "me", members), play.now)
    (event,) = play.events()
    assert isinstance(event, Refused)
    assert "member 'm-7'" in event.message
    play.member.leave(play.now)
    assert play.asks(LeaveGroup).member_id == "me"


def test_unreadable_assignment_is_told() -> None:
    """By whom it is."""
    play = Play()
    play.join()
    play.answer(SyncGroup, SyncAnswer(0, b"\0"))
    (event,) = play.events()
    assert isinstance(event, Refused)
    assert "leader's assignment for member 'me'" in event.message


def test_unknown_assignor_is_refused() -> None:
    """The coordinator should not have chosen it."""
    play = Play()
    play.join(protocol="mine")
    (event,) = play.events()
    assert isinstance(event, Refused)
    assert event.error == 23


# -- eager ----------------------------------------------------------------------------------------


def test_eager_member_drains_all_before_it_joins() -> None:
    """Its heartbeats go on meanwhile."""
    play = Play(RangeAssignor())
    play.start(protocol="range")
    play.beat(27)
    assert play.events() == [Revoked(partitions("t:0,t:1"))]
    play.release("t:0")
    play.beat(27)
    play.beat(27)
    assert (play.events(), play.member.held) == ([], partitions("t:1"))
    play.release("t:1")
    assert play.member.wake_at() <= play.now
    join = play.join(2, "range")
    assert said(join, "range").owned == frozenset()
    play.sync("t:1,t:2")
    assert play.events() == [Assigned(partitions("t:1,t:2"))]


def test_member_of_both_kinds_of_assignors_is_eager() -> None:
    """Others may know the eager one alone, as in a rolling upgrade."""
    play = Play(CooperativeStickyAssignor(), RangeAssignor())
    play.start()
    play.beat(27)
    assert play.events() == [Revoked(partitions("t:0,t:1"))]
    play.release("t:0,t:1")
    assert said(play.join(2)).owned == frozenset()


def test_sticky_member_tells_what_it_had() -> None:
    """And the generation of that."""
    play = Play(StickyAssignor())
    play.start(protocol="sticky")
    play.beat(27)
    play.release("t:0,t:1")
    claims = read_claims(said(play.join(2, "sticky"), "sticky").user_data)
    assert (claims.partitions, claims.generation) == (partitions("t:0,t:1"), 1)


def test_eager_member_whose_topics_change_while_it_joins_takes_nothing() -> None:
    """It would revoke it at once."""
    play = Play(RangeAssignor())
    play.join(protocol="range")
    sync = play.asks(SyncGroup)
    play.tell("t:4,u:1")
    data = write_assignment(Assignment(partitions("t:0")))
    play.member.answered(sync, SyncAnswer(0, data), play.now)
    assert play.events() == []
    assert said(play.asks(JoinGroup), "range").topics == {"t", "u"}


# -- cooperative ----------------------------------------------------------------------------------


def test_cooperative_member_joins_at_once_and_keeps_what_it_has() -> None:
    """What stays is not touched, what is new is added."""
    play = Play()
    play.start()
    play.beat(27)
    assert play.events() == []
    join = play.join(2)
    assert (said(join).owned, said(join).generation) == (partitions("t:0,t:1"), 1)
    play.sync("t:0,t:1,t:2")
    assert play.events() == [Assigned(partitions("t:2"))]


def test_cooperative_member_gives_up_what_it_lost_and_joins_again() -> None:
    """Only that is drained, with heartbeats."""
    play = Play()
    play.start()
    play.beat(27)
    play.join(2)
    play.sync("t:0,t:3")
    assert play.events() == [Revoked(partitions("t:1")), Assigned(partitions("t:3"))]
    assert play.member.held == partitions("t:0,t:1,t:3")
    play.beat()
    play.release("t:1")
    join = play.join(3)
    assert (said(join).owned, said(join).generation) == (partitions("t:0,t:3"), 2)
    play.sync("t:0,t:3")
    assert play.events() == []
    play.beat()


def _draining() -> Play:
    """It drains t:1, and the group rebalances once more."""
    play = Play()
    play.start()
    play.beat(27)
    play.join(2)
    play.sync("t:0")
    play.beat(27)
    return play


def test_rebalance_in_the_middle_of_a_drain_does_not_wait_for_it() -> None:
    """What drains is still claimed; if it is given again, it is assigned after its release."""
    play = _draining()
    assert said(play.join(3)).owned == partitions("t:0,t:1")
    play.events()
    play.sync("t:0,t:1")
    assert play.events() == []
    play.release("t:1")
    assert play.events() == [Assigned(partitions("t:1"))]
    play.beat()


def test_claim_that_was_released_meanwhile_is_withdrawn() -> None:
    """Else nobody would have the partition."""
    play = _draining()
    play.join(3)
    play.release("t:1")
    play.sync("t:0")
    assert said(play.asks(JoinGroup)).owned == partitions("t:0")


def test_claim_that_was_released_and_is_given_again_stands() -> None:
    """There is nothing to withdraw."""
    play = _draining()
    join = play.asks(JoinGroup)
    play.release("t:1")
    answer = JoinAnswer(0, 3, "cooperative-sticky", "leader", "me")
    play.member.answered(join, answer, play.now)
    play.sync("t:0,t:1")
    assert play.events()[-1] == Assigned(partitions("t:1"))
    play.beat()


def test_topics_that_change_before_an_answer_is_proven_wait_for_its_sync() -> None:
    """The generation is joined: another join would have all members join again."""
    play = Play(instance="i")
    join = play.asks(JoinGroup)
    play.member.answered(join, JoinAnswer(0, 1, "cooperative-sticky", "leader", "me"), play.now)
    play.tell("t:4,u:1")
    play.beat()
    play.sync("t:0")
    assert said(play.asks(JoinGroup)).topics == {"t", "u"}


def test_topic_that_is_no_longer_wanted_is_given_up() -> None:
    """Though the leader knew it as wanted."""
    play = Play(topics="t:4,u:1")
    play.start("t:0,u:0")
    play.tell("t:4")
    assert said(play.join(2)).topics == {"t"}
    play.sync("t:0")
    assert play.events() == [Revoked(partitions("u:0"))]


def test_assignment_of_a_topic_that_went_meanwhile_is_not_taken() -> None:
    """The member joins again anyway."""
    play = Play(topics="t:4,u:1")
    join = play.asks(JoinGroup)
    play.tell("t:4")
    answer = JoinAnswer(0, 1, "cooperative-sticky", "leader", "me")
    play.member.answered(join, answer, play.now)
    play.sync("t:0,u:0")
    assert play.events() == [Assigned(partitions("t:0"))]
    play.asks(JoinGroup)


def test_topic_of_a_predecessor_is_not_taken() -> None:
    """A static member came back with other topics, and its group has not noticed."""
    play = Play(RangeAssignor(), instance="i")
    play.join(protocol="range")
    play.sync("t:0,old:0")
    assert play.events() == [Assigned(partitions("t:0"))]
    play.beat()


# -- metadata -------------------------------------------------------------------------------------


def test_leader_joins_again_when_its_topics_grow() -> None:
    """No other member does."""
    leader, other = Play(), Play()
    leads(leader)
    leader.sync("t:0")
    other.start()
    for play in (leader, other):
        play.tell("t:4")
        assert play.member.poll(play.now) is None
        play.tell("t:5")
    leader.asks(JoinGroup)
    assert other.member.poll(other.now) is None


def test_leader_joins_again_when_a_topic_of_others_grows() -> None:
    """It watches for all."""
    play = Play()
    leads(play, ("other", Subscription(frozenset({"u"}))))
    play.member.group_metadata_changed(infos("u:2"), play.now)
    play.sync("t:0")
    play.member.group_metadata_changed(infos("u:2"), play.now)
    assert play.member.poll(play.now) is None
    play.member.group_metadata_changed(infos("u:3"), play.now)
    play.asks(JoinGroup)


def test_any_member_joins_again_when_its_topics_are_others() -> None:
    """A pattern matches more."""
    play = Play()
    play.start()
    play.tell("t:4,u:1")
    join = play.asks(JoinGroup)
    assert said(join).topics == {"t", "u"}
    assert "topics" in join.reason


# -- errors ---------------------------------------------------------------------------------------


def to_join(play: Play, error: int) -> None:
    """Joins in vain."""
    if play.member.held:
        play.beat(27)
        play.release("t:0,t:1")
    play.events()
    play.answer(JoinGroup, JoinAnswer(error))


def to_sync(play: Play, error: int) -> None:
    """Asks for its part in vain."""
    if play.member.held:
        play.beat(27)
    play.events()
    play.join(2)
    play.answer(SyncGroup, SyncAnswer(error))


def to_beat(play: Play, error: int) -> None:
    """Its heartbeat fails."""
    play.beat(error)


STEPS = (to_join, to_sync, to_beat)
Step = Callable[[Play, int], None]


@pytest.mark.parametrize("step", STEPS)
def test_member_that_is_unknown_starts_anew(step: Step) -> None:
    """All is lost, for others may have it."""
    play = Play()
    play.start()
    step(play, 25)
    (event,) = play.events()
    assert isinstance(event, Lost)
    assert event.tps == partitions("t:0,t:1")
    assert (play.member.held, play.member.epoch, play.member.member_id) == (frozenset(), -1, "")
    join = play.asks(JoinGroup)
    assert (join.member_id, said(join).owned, said(join).generation) == ("", frozenset(), -1)


@pytest.mark.parametrize("step", [to_sync, to_beat])
def test_member_of_an_old_generation_keeps_its_id(step: Step) -> None:
    """As in Java; what it held is lost."""
    play = Play()
    play.start()
    step(play, 22)
    assert names(play.events()) == ["Lost"]
    assert (play.member.epoch, play.asks(JoinGroup).member_id) == (-1, "me")


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("error", FINAL)
def test_refusal_is_told_and_ends_all(step: Step, error: int) -> None:
    """Nothing more is asked."""
    play = Play()
    play.start()
    step(play, error)
    lost, refused = play.events()
    assert isinstance(lost, Lost)
    assert isinstance(refused, Refused)
    assert (refused.error, refused.offered) == (error, ("cooperative-sticky",) * (error == 23))
    assert (play.member.poll(play.now + 99), play.member.wake_at()) == (None, math.inf)
    assert (play.member.held, play.member.epoch) == (frozenset(), -1)


@pytest.mark.parametrize("instance", ["i", None])
@pytest.mark.parametrize("error", [30, 82])
def test_member_that_was_replaced_leaves_without_a_word(instance: str | None, error: int) -> None:
    """Its successor has the instance id; another refusal leaves a membership that a dynamic member gives back."""
    play = Play(instance=instance)
    play.start()
    play.beat(error)
    lost, refused = play.events()
    assert isinstance(lost, Lost)
    assert isinstance(refused, Refused)
    is_replaced = error == 82
    assert ("group_instance_id has joined" in lost.reason) == is_replaced
    assert ("group_instance_id has joined" in refused.message) == is_replaced
    play.member.leave(play.now)
    assert play.member.has_left == (is_replaced or instance is not None)


@pytest.mark.parametrize("error", RETRIABLE)
def test_heartbeat_before_the_sync_that_fails_is_joined_again(error: int) -> None:
    """Nothing proves the answer to the join then."""
    play = Play(instance="i")
    join = play.asks(JoinGroup)
    play.member.answered(join, JoinAnswer(0, 1, "cooperative-sticky", "leader", "me"), play.now)
    play.beat(error)
    play.now = play.member.wake_at()
    assert play.asks(JoinGroup).member_id == "me"


def test_member_that_is_forgotten_before_its_sync_starts_anew() -> None:
    """A heartbeat that is to prove the join says so."""
    play = Play(instance="i")
    join = play.asks(JoinGroup)
    play.member.answered(join, JoinAnswer(0, 1, "cooperative-sticky", "leader", "me"), play.now)
    play.beat(25)
    assert play.asks(JoinGroup).member_id == ""


@pytest.mark.parametrize("error", RETRIABLE)
@pytest.mark.parametrize("step", [to_join, to_sync])
def test_coordinator_that_cannot_is_asked_again_later(step: Step, error: int) -> None:
    """By a join; a cooperative member keeps what it has."""
    play = Play()
    play.start()
    step(play, error)
    assert names(play.events()) == (["CoordinatorLost"] if error in (15, 16) else [])
    assert play.member.held == partitions("t:0,t:1")
    assert play.member.poll(play.now) is None
    play.now = play.member.wake_at()
    assert said(play.asks(JoinGroup)).generation == 1


@pytest.mark.parametrize("error", RETRIABLE)
def test_heartbeat_that_fails_is_repeated(error: int) -> None:
    """The member has until its session ends."""
    play = Play()
    play.start()
    began = play.now
    play.beat(error)
    assert names(play.events()) == (["CoordinatorLost"] if error in (15, 16) else [])
    play.now = play.member.wake_at()
    assert play.now < began + INTERVAL + 1
    play.asks(Heartbeat)
    assert play.member.held_until == began + SESSION


def test_waits_grow_up_to_ten_times_the_first() -> None:
    """And begin anew after success."""
    play, waits = Play(), []
    for _ in range(6):
        play.answer(JoinGroup, JoinAnswer(14))
        waits.append(round(play.member.wake_at() - play.now, 3))
        play.now = play.member.wake_at()
    assert waits == [0.1, 0.2, 0.4, 0.8, 1.0, 1.0]
    play.join()
    play.answer(SyncGroup, SyncAnswer(14))
    assert play.member.wake_at() == pytest.approx(play.now + 0.1)


def test_sync_that_a_rebalance_overtakes_is_joined_again_at_once() -> None:
    """The claim is that of the last assignment: this generation's was never told."""
    play = Play()
    play.start()
    to_sync(play, 27)
    assert play.events() == []
    join = play.asks(JoinGroup)
    assert (said(join).owned, said(join).generation) == (partitions("t:0,t:1"), 1)


def test_rebalance_again_and_again_is_not_joined_in_a_tight_loop() -> None:
    """The coordinator has said no twice."""
    play = Play()
    play.answer(JoinGroup, JoinAnswer(27))
    play.answer(JoinGroup, JoinAnswer(27))
    assert play.member.poll(play.now) is None


# -- no answer, late answers ----------------------------------------------------------------------


def test_join_that_fails_keeps_the_member_id() -> None:
    """With it the coordinator takes the next join for the same member's."""
    play = Play()
    play.answer(JoinGroup, JoinAnswer(79, member_id="me"))
    play.member.failed(play.asks(JoinGroup), play.now)
    assert play.events() == [CoordinatorLost()]
    play.now = play.member.wake_at()
    assert play.asks(JoinGroup).member_id == "me"


def test_sync_that_fails_is_joined_again() -> None:
    """Cooperative members keep what they hold."""
    play = Play()
    play.start()
    play.beat(27)
    play.join(2)
    play.member.failed(play.asks(SyncGroup), play.now)
    assert play.events() == [CoordinatorLost()]
    play.now = play.member.wake_at()
    assert said(play.asks(JoinGroup)).owned == partitions("t:0,t:1")


def test_answer_to_a_request_that_was_given_up_is_ignored() -> None:
    """A newer one is under way."""
    play = Play()
    old = play.asks(JoinGroup)
    play.member.failed(old, play.now)
    play.now = play.member.wake_at()
    new = play.asks(JoinGroup)
    play.member.answered(old, JoinAnswer(0, 3, "cooperative-sticky", "x", "ghost"), play.now)
    play.member.failed(replace(new), play.now)
    assert play.member.member_id == ""
    play.member.answered(new, JoinAnswer(0, 4, "cooperative-sticky", "x", "me"), play.now)
    assert (play.member.member_id, play.member.epoch) == ("me", 4)
    play.beat()
    assert play.asks(SyncGroup).generation == 4


# -- time -----------------------------------------------------------------------------------------


def test_session_counts_from_when_the_heartbeat_was_sent() -> None:
    """Not from its answer."""
    play = Play()
    play.start()
    play.now = play.member.wake_at()
    sent, beat = play.now, play.asks(Heartbeat)
    play.now += 2
    play.member.answered(beat, HeartbeatAnswer(0), play.now)
    assert play.member.held_until == sent + SESSION
    assert play.member.wake_at() == sent + INTERVAL


@pytest.mark.parametrize("error", [0, 27])
def test_answer_within_the_session_saves_it(error: int) -> None:
    """The coordinator says that it is a member."""
    play = Play()
    play.start()
    play.now += 9
    beat = play.asks(Heartbeat)
    play.now += 5
    play.member.answered(beat, HeartbeatAnswer(error), play.now)
    assert play.events() == []


def test_silence_for_a_session_ends_the_trust_and_not_the_membership() -> None:
    """A coordinator that was away begins the sessions of its members anew: nothing is delivered again for that."""
    play = Play()
    play.start()
    play.now = play.member.wake_at()
    beat = play.asks(Heartbeat)
    assert play.member.wake_at() == play.member.held_until == 100 + SESSION
    play.now = play.member.wake_at()
    assert play.member.poll(play.now) is None
    assert play.member.held_until <= play.now < play.member.wake_at()
    play.member.failed(beat, play.now)
    assert play.events() == [CoordinatorLost()]
    play.now = play.member.wake_at()
    sent = play.now
    beat = play.asks(Heartbeat)
    play.member.answered(beat, HeartbeatAnswer(0), play.now + 1)
    assert (play.events(), play.member.held_until) == ([], sent + SESSION)
    assert play.member.wake_at() > sent + 1


def test_member_that_was_forgotten_meanwhile_loses_all() -> None:
    """It joins with nothing."""
    play = Play()
    play.start()
    play.now = play.member.held_until + 1
    beat = play.asks(Heartbeat)
    assert play.events() == []
    play.member.answered(beat, HeartbeatAnswer(25), play.now)
    assert names(play.events()) == ["Lost"]
    assert (play.member.epoch, play.member.held_until) == (-1, math.inf)
    join = play.asks(JoinGroup)
    assert (join.member_id, said(join).owned) == ("", frozenset())


def test_join_may_take_longer_than_a_session() -> None:
    """The coordinator keeps who waits; the member looks at each interval that no answer has come.

    When one has come it may have been on its way for long: nothing is handled until a heartbeat is answered, nor lost.
    """
    play = Play()
    play.start()
    play.beat(27)
    held_until, join = play.member.held_until, play.asks(JoinGroup)
    for _ in range(20):
        assert play.member.wake_at() == play.now + INTERVAL
        play.now = play.member.wake_at()
        assert play.member.poll(play.now) is None
        assert play.member.held_until == play.now + SESSION
    play.now += 1
    play.member.answered(join, JoinAnswer(0, 2, "cooperative-sticky", "leader", "me"), play.now)
    assert play.member.held_until == held_until < play.now
    assert play.member.wake_at() <= play.now
    play.beat()
    assert play.member.held_until == play.now + SESSION
    play.sync("t:0,t:1")
    assert play.events() == []


def test_heartbeat_that_does_not_prove_a_late_answer_in_time_loses_all() -> None:
    """A session after the last look before that answer, whatever was on its way, the session is over."""
    play = Play()
    play.start()
    play.beat(27)
    join = play.asks(JoinGroup)
    for _ in range(5):
        play.now = play.member.wake_at()
        play.member.poll(play.now)
    looked = play.now
    play.now += 1
    play.member.answered(join, JoinAnswer(0, 2, "cooperative-sticky", "leader", "me"), play.now)
    play.asks(Heartbeat)
    assert play.member.wake_at() == looked + SESSION
    play.now = looked + SESSION
    play.member.poll(play.now)
    assert names(play.events()) == ["Lost"]


@pytest.mark.parametrize(
    "seconds, looks, kind",
    [
        (3.4, (), SyncGroup),
        (4.9, (), SyncGroup),
        (5.0, (), Heartbeat),
        (2.9, (2.5,), SyncGroup),
        (4.0, (3.0,), Heartbeat),
    ],
)
def test_answer_to_a_join_is_quick_within_half_a_session(
    seconds: float, looks: tuple[float, ...], kind: type[Request]
) -> None:
    """And while no look has found the member waiting for others."""
    play = Play()
    play.start()
    play.beat(27)
    sent, join = play.now, play.asks(JoinGroup)
    for look in looks:
        assert play.member.poll(sent + look) is None
    play.now = sent + seconds
    play.member.answered(join, JoinAnswer(0, 2, "cooperative-sticky", "leader", "me"), play.now)
    assert play.events() == []
    play.asks(kind)


def test_answer_to_a_join_that_comes_late_is_proven_by_a_heartbeat() -> None:
    """The group may be stable by then: the session began long ago, and the SyncGroup does not renew it."""
    play = Play()
    join = play.asks(JoinGroup)
    for _ in range(2):
        play.now = play.member.wake_at()
        play.member.poll(play.now)
    play.member.answered(join, JoinAnswer(0, 2, "cooperative-sticky", "leader", "me"), play.now)
    sent, beat = play.now, play.asks(Heartbeat)
    play.now += 2
    play.member.answered(beat, HeartbeatAnswer(0), play.now)
    play.sync("t:0")
    assert play.member.held_until == sent + SESSION


@pytest.mark.parametrize("waits", [0, 2])
def test_static_member_that_comes_back_heartbeats_before_its_sync(waits: int) -> None:
    """Its session began with its join, and may have the length of its predecessor's."""
    play = Play(instance="i")
    join = play.asks(JoinGroup)
    for _ in range(waits):
        play.now = play.member.wake_at()
        play.member.poll(play.now)
    play.member.answered(join, JoinAnswer(0, 7, "cooperative-sticky", "leader", "me"), play.now)
    sent = play.now
    play.beat()
    play.sync("t:0")
    assert (play.now, play.member.held_until) == (sent, sent + SESSION)


def test_first_heartbeat_after_a_join_comes_before_its_time_is_over() -> None:
    """The time counts from when the join was sent, and so does the heartbeat."""
    play = Play(rebalance=5.0)
    request = play.asks(JoinGroup)
    play.now += 2.5
    joined = JoinAnswer(0, 1, "cooperative-sticky", "leader", "me")
    play.member.answered(request, joined, play.now)
    play.sync("t:0")
    assert play.events() == [Assigned(partitions("t:0"))]
    play.beat()
    assert play.events() == []


def test_static_member_that_missed_a_generation_has_lost_all() -> None:
    """The group went on without it, and gave away what it holds; with the new generation it could commit that."""
    play = Play(instance="i")
    play.start()
    play.beat(27)
    play.member.failed(play.asks(JoinGroup), play.now)
    assert play.events() == [CoordinatorLost()]
    play.now = play.member.wake_at()
    play.join(3)
    assert names(play.events()) == ["Lost"]
    play.beat()
    play.sync("t:0")
    assert play.events() == [Assigned(partitions("t:0"))]


@pytest.mark.parametrize("instance, generation", [("i", 2), (None, 3)])
def test_member_that_missed_no_generation_keeps_what_it_has(
    instance: str | None, generation: int
) -> None:
    """A dynamic one that misses a generation is out of the group, so it took part in all of them."""
    play = Play(instance=instance)
    play.start()
    play.beat(27)
    play.join(generation)
    assert play.events() == []


@pytest.mark.parametrize("looks", [True, False])
def test_member_that_holds_nothing_may_wait_as_long(*, looks: bool) -> None:
    """What it is given then is not lost at once, for a session that began with its request."""
    play = Play()
    join = play.asks(JoinGroup)
    for _ in range(3):
        play.now += INTERVAL
        if looks:
            assert play.member.wake_at() == play.now
            assert play.member.poll(play.now) is None
    play.now += 0.5
    play.member.answered(join, JoinAnswer(0, 2, "cooperative-sticky", "leader", "me"), play.now)
    play.beat()
    play.now += 0.7
    play.sync("t:0")
    assert play.events() == [Assigned(partitions("t:0"))]


def test_sync_may_take_longer_than_a_session() -> None:
    """The leader takes its time."""
    play = Play()
    play.start()
    play.beat(27)
    play.join(2)
    sync = play.asks(SyncGroup)
    for _ in range(20):
        play.now = play.member.wake_at()
        assert play.member.poll(play.now) is None
    held_until = play.member.held_until
    play.member.answered(sync, SyncAnswer(27), play.now)
    assert play.events() == []
    assert held_until == play.now + SESSION > play.now > play.member.held_until
    assert said(play.asks(JoinGroup)).owned == partitions("t:0,t:1")


def test_sync_that_is_answered_late_is_proven_by_a_heartbeat() -> None:
    """Nothing of what it gives is handled before that."""
    play = Play()
    play.join()
    sync = play.asks(SyncGroup)
    for _ in range(4):
        play.now = play.member.wake_at()
        play.member.poll(play.now)
    given = SyncAnswer(0, write_assignment(Assignment(partitions("t:0"))))
    play.member.answered(sync, given, play.now)
    assert play.events() == [Assigned(partitions("t:0"))]
    assert play.member.held_until < play.now
    play.beat()
    assert (play.events(), play.member.held_until) == ([], play.now + SESSION)


def waited_for(play: Play) -> SyncGroup:
    """A SyncGroup for which the member has waited for longer than a session."""
    play.start()
    play.beat(27)
    play.join(2)
    sync = play.asks(SyncGroup)
    for _ in range(5):
        play.now = play.member.wake_at()
        assert play.member.poll(play.now) is None
    return sync


def test_late_sync_is_trusted_to_have_begun_a_session_until_the_next_join() -> None:
    """Nothing is handled before that is proven, nor is it lost."""
    play = Play()
    sync = waited_for(play)
    given = SyncAnswer(0, write_assignment(Assignment(partitions("t:0,t:1"))))
    play.member.answered(sync, given, play.now)
    play.tell("t:4,u:1")
    assert play.member.held_until < play.now
    play.asks(JoinGroup)
    assert (play.events(), play.member.held) == ([], partitions("t:0,t:1"))


def test_late_sync_that_is_refused_has_begun_no_session() -> None:
    """The coordinator is another one, which may never have heard of the member."""
    play = Play()
    sync = waited_for(play)
    play.member.answered(sync, SyncAnswer(16), play.now)
    assert names(play.events()) == ["CoordinatorLost", "Lost"]


def test_rebalance_right_after_a_late_answer_leaves_its_whole_time_to_drain() -> None:
    """It cannot have begun before the SyncGroup was sent."""
    play = Play(RangeAssignor(), rebalance=30.0)
    play.join(protocol="range")
    sent, sync = play.now, play.asks(SyncGroup)
    for _ in range(5):
        play.now = play.member.wake_at()
        play.member.poll(play.now)
    given = SyncAnswer(0, write_assignment(Assignment(partitions("t:0"))))
    play.member.answered(sync, given, play.now)
    for _ in range(4):
        play.beat(27)
        assert play.member.held_until > play.now
    assert names(play.events()) == ["Assigned", "Revoked"]
    while play.now < sent + 30 - INTERVAL:
        play.beat(27)
    assert play.member.held_until == sent + 30


def test_topic_that_is_deleted_while_it_drains_is_given_up_and_joined_without() -> None:
    """A pattern has chosen it; nobody gets its partition, and the claim of it ends."""
    play = Play(topics="t:4,u:1")
    play.start("t:0,u:0")
    play.beat(27)
    play.join(2)
    play.sync("t:0")
    assert play.events() == [Revoked(partitions("u:0"))]
    play.tell("t:4")
    join = play.join(3)
    assert said(join).topics == {"t"}
    assert said(join).owned == partitions("t:0,u:0")
    play.sync("t:0")
    assert play.events() == []
    play.release("u:0")
    assert said(play.join(4)).owned == partitions("t:0")
    play.sync("t:0")
    assert (play.events(), play.member.held) == ([], partitions("t:0"))
    assert play.member.poll(play.now) is None


def test_quick_sync_begins_no_session() -> None:
    """Kafka repeats the assignment of a stable group, and the session goes on from the join."""
    play = Play()
    play.join()
    play.now += 2
    play.sync("t:0")
    assert play.member.held_until == 100 + SESSION
    assert play.member.wake_at() == 100 + INTERVAL


@pytest.mark.parametrize("is_told_again", [True, False])
def test_join_that_may_be_a_repetition_is_proven_by_a_heartbeat(*, is_told_again: bool) -> None:
    """It was told this generation before, or an answer was lost that may have told it."""
    play = Play()
    play.start()
    if is_told_again:
        play.beat(27)
        play.join(2)
    else:
        play.beat(27)
    play.member.failed(play.asks(SyncGroup if is_told_again else JoinGroup), play.now)
    play.now = play.member.wake_at()
    play.join(2)
    held_until, sent = play.member.held_until, play.now
    assert held_until < sent + SESSION
    play.beat()
    assert play.member.held_until == sent + SESSION
    play.asks(SyncGroup)


def test_heartbeat_before_the_sync_may_find_the_next_rebalance() -> None:
    """It has proven the answer; the sync is refused, and then that rebalance is joined."""
    play = Play()
    play.member.failed(play.asks(JoinGroup), play.now)
    play.now = play.member.wake_at()
    play.join(2)
    play.beat(27)
    play.answer(SyncGroup, SyncAnswer(27, b""))
    play.now = play.member.wake_at()
    play.asks(JoinGroup)


def test_member_that_has_something_to_revoke_hears_what_though_each_heartbeat_finds_a_rebalance() -> (
    None
):
    """A group that has members of the consumer protocol, too, says so until the partition is released: only a sync says which."""
    play = Play()
    play.start()
    play.beat(27)
    play.member.failed(play.asks(JoinGroup), play.now)
    play.now = play.member.wake_at()
    play.join(2)
    play.beat(27)
    play.sync("t:0")
    assert play.events()[-1] == Revoked(partitions("t:1"))


def test_drain_that_overruns_the_rebalance_has_lost_all() -> None:
    """The group goes on without it, though its heartbeats were answered."""
    play = Play(RangeAssignor())
    play.start(protocol="range")
    while play.now < 100 + REBALANCE - INTERVAL:
        play.beat(27)
    play.now = play.member.wake_at()
    if isinstance(play.member.poll(play.now), Heartbeat):
        play.now = play.member.wake_at()
        play.member.poll(play.now)
    assert play.now == 100 + REBALANCE
    _, lost = play.events()
    assert isinstance(lost, Lost)
    assert "rebalance_timeout" in lost.reason


def test_static_member_whose_coordinator_goes_back_keeps_what_it_has() -> None:
    """The new one knows the last generation that was shared out, and no later one."""
    play = Play(instance="i")
    play.start()
    play.beat(27)
    play.join(2)
    play.answer(SyncGroup, SyncAnswer(16))
    play.now = play.member.wake_at()
    play.join(1)
    assert names(play.events()) == ["CoordinatorLost"]
    assert play.member.held == partitions("t:0,t:1")


def test_process_that_was_stopped_while_it_joined_has_lost_all() -> None:
    """The answer may have been sent right after its last look."""
    play = Play()
    play.start()
    play.beat(27)
    join = play.asks(JoinGroup)
    play.now += SESSION
    play.member.answered(join, JoinAnswer(0, 2, "cooperative-sticky", "leader", "me"), play.now)
    (lost,) = play.events()
    assert isinstance(lost, Lost)
    assert "no heartbeat was answered within session_timeout" in lost.reason
    play.beat()
    play.sync("t:0")
    assert play.events() == [Assigned(partitions("t:0"))]
    assert said(play.asks(JoinGroup)).owned == partitions("t:0"), "its old claim is withdrawn"


def test_leader_that_was_stopped_before_its_sync_proves_that_it_is_a_member() -> None:
    """The group may have gone on without it, and would refuse what it shares out."""
    play = Play()
    play.start()
    play.beat(27)
    leads(play, ("other", Subscription(frozenset({"u"}))), generation=2)
    play.member.group_metadata_changed(infos("u:2"), play.now)
    play.now += SESSION
    beat = play.asks(Heartbeat)
    assert names(play.events()) == ["Lost"]
    play.member.answered(beat, HeartbeatAnswer(0), play.now)
    assert parts(play.asks(SyncGroup))["other"] == partitions("u:0,u:1")


def test_join_that_fails_after_a_session_has_lost_all() -> None:
    """The coordinator has perhaps never seen it."""
    play = Play()
    play.start()
    play.beat(27)
    join = play.asks(JoinGroup)
    for _ in range(5):
        play.now = play.member.wake_at()
        play.member.poll(play.now)
    play.member.failed(join, play.now)
    assert names(play.events()) == ["CoordinatorLost", "Lost"]


def test_release_after_a_loss_says_nothing_of_what_is_held_anew() -> None:
    """The old owner ends late; the new one has begun by then."""
    play = Play()
    play.start()
    play.beat(27)
    play.join(2)
    play.sync("t:0")
    play.beat(25)
    play.events()
    play.join(3)
    play.sync("t:0,t:1")
    play.events()
    play.release("t:1")
    assert (play.events(), play.member.held) == ([], partitions("t:0,t:1"))


def test_release_after_a_loss_is_nothing() -> None:
    """The drain was cut short by it."""
    play = Play(RangeAssignor())
    play.start(protocol="range")
    play.beat(27)
    play.beat(25)
    assert names(play.events()) == ["Revoked", "Lost"]
    play.release("t:0,t:1")
    assert play.events() == []
    assert play.asks(JoinGroup).member_id == ""


# -- the end --------------------------------------------------------------------------------------


def test_dynamic_member_says_that_it_leaves() -> None:
    """Then there is no more to send."""
    play = Play()
    play.start()
    play.member.leave(play.now)
    assert (play.member.has_left, play.member.held) == (False, frozenset())
    assert play.answer(LeaveGroup, LeaveAnswer(0)) == LeaveGroup("g", "me", None)
    assert (play.member.has_left, play.member.wake_at()) == (True, math.inf)
    assert play.member.poll(play.now + 99) is None


def test_static_member_leaves_without_a_word() -> None:
    """Its successor has the assignment at once (KIP-345)."""
    play = Play(instance="i")
    play.start()
    had_left = play.member.has_left
    play.member.leave(play.now)
    assert (had_left, play.member.has_left) == (False, True)
    assert play.member.poll(play.now) is None


def test_member_that_never_joined_leaves_at_once() -> None:
    """Nobody knows it."""
    play = Play()
    play.member.leave(play.now)
    assert play.member.has_left


def test_leave_waits_for_the_request_that_is_under_way() -> None:
    """Its answer may give the id to leave with."""
    play = Play()
    join = play.asks(JoinGroup)
    play.member.leave(play.now)
    assert (play.member.has_left, play.member.poll(play.now)) == (False, None)
    play.member.answered(join, JoinAnswer(79, member_id="me"), play.now)
    assert play.asks(LeaveGroup).member_id == "me"


def test_leave_after_a_join_that_is_refused_names_the_member() -> None:
    """Such an answer has no id; the member keeps its own."""
    play = Play()
    play.start()
    play.beat(27)
    join = play.asks(JoinGroup)
    play.member.leave(play.now)
    play.member.answered(join, JoinAnswer(27), play.now)
    assert play.asks(LeaveGroup).member_id == "me"


def test_leave_goes_on_when_a_join_is_cut_short() -> None:
    """Whoever runs the member fails the request."""
    play = Play()
    play.start()
    play.beat(27)
    join = play.asks(JoinGroup)
    play.member.leave(play.now)
    play.member.failed(join, play.now)
    play.member.failed(play.asks(LeaveGroup), play.now)
    assert play.member.has_left
    assert play.events() == []
