"""Several classic members and the model of their coordinator, with faults at every request and answer.

A seed gives the whole course: who joins, leaves, is stopped, or is answered late or never; topics that grow; a coordinator that moves.
"""

from __future__ import annotations

import math
import random
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

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
    Lost,
    Refused,
    Revoked,
    TopicPartition,
)
from consumer_sdk.adapters.kafka.groups.messages import Answer, JoinGroup, Request, SyncGroup
from consumer_sdk.testing.kafka.classic_group import Pending, State
from consumer_sdk.testing.kafka.coordinator import ClusterTopics, GroupCoordinator

SESSION, INTERVAL, REBALANCE = 10.0, 3.0, 30.0
TRANSIT = 0.3
"""Seconds that a request, an answer, or the news of a broken connection takes at most."""
CHAOS, CALM = 120.0, 200.0
"""Seconds."""

KINDS: dict[str, list[list[type[Assignor]]]] = {
    "eager": [[RangeAssignor], [RangeAssignor, RoundRobinAssignor]],
    "sticky": [[StickyAssignor]],
    "cooperative": [[CooperativeStickyAssignor]],
    "upgrade": [
        [CooperativeStickyAssignor],
        [CooperativeStickyAssignor, RangeAssignor],
        [RangeAssignor, CooperativeStickyAssignor],
    ],
}


@dataclass(eq=False)
class Actor:
    """A member, its request on the way, and what its owner believes to hold."""

    member: ClassicMember
    topics: frozenset[str]
    instance_id: str | None
    stopped_until: float = 0.0
    request: Request | None = None
    arrives: float = math.inf
    waiting: Pending | None = None
    answer: Answer | None = None
    answer_at: float = math.inf
    fails_at: float = math.inf
    mine: set[TopicPartition] = field(default_factory=set)
    draining: dict[frozenset[TopicPartition], float] = field(default_factory=dict)
    is_fenced: bool = False

    def take_events(self, now: float, drain: float) -> None:
        """Does what the member says."""
        for event in self.member.events():
            match event:
                case Assigned(tps):
                    assert not tps & self.mine, "assigned twice"
                    self.mine |= tps
                case Revoked(tps):
                    assert tps <= self.mine
                    self.draining[tps] = now + drain
                case Lost(tps, _):
                    assert tps == self.mine
                    self.mine.clear()
                    self.draining.clear()
                case Refused(error, message):
                    assert error == 82, f"refused: {error} {message}"
                    self.is_fenced = True
                case _:
                    pass
        assert self.mine == self.member.held

    def wake_at(self) -> float:
        """When something is due."""
        at = min(self.answer_at, self.fails_at, self.member.wake_at(), *self.draining.values())
        return min(self.arrives, max(at, self.stopped_until))


class World:
    """One course of a group."""

    def __init__(self, seed: int, kind: str) -> None:
        self.dice = random.Random(seed)
        self.kinds = KINDS[kind]
        self.now = 1.0
        topics = ClusterTopics(self.dice)
        self.names = [f"t{n}" for n in range(self.dice.randint(1, 3))]
        for name in self.names:
            topics.create(name, self.dice.randint(1, 5))
        self.broker = GroupCoordinator(topics, self.dice)
        self.actors: list[Actor] = []
        self.calm = False
        self.has_same_topics = self.dice.random() < 0.5
        self.chaos_at = self.now
        for _ in range(self.dice.randint(1, 3)):
            self.add()

    # -- what happens to the members --------------------------------------------------------

    def add(self, instance_id: str | None = None, topics: frozenset[str] = frozenset()) -> None:
        """One more; a static one may take the place of its predecessor."""
        wanted = [n for n in self.names if self.has_same_topics or self.dice.random() < 0.7]
        topics = topics or frozenset(wanted or self.names[:1])
        member = ClassicMember(
            "g",
            [each() for each in self.dice.choice(self.kinds)],
            session_timeout=SESSION,
            rebalance_timeout=REBALANCE,
            heartbeat_interval=INTERVAL,
            instance_id=instance_id,
        )
        actor = Actor(member, topics, instance_id)
        self.actors.append(actor)
        self.tell(actor)

    def tell(self, actor: Actor) -> None:
        """What the cluster has."""
        known = self.broker.topics.by_name()
        actor.member.metadata_changed({name: known[name] for name in actor.topics}, self.now)
        others = {name: known.get(name) for name in actor.member.group_topics}
        actor.member.group_metadata_changed(others, self.now)

    def remove(self, actor: Actor) -> None:
        """Drained or not: it leaves, and its connection is closed."""
        actor.member.leave(self.now)
        if actor.request is not None:
            actor.member.failed(actor.request, self.now)
        leave = actor.member.poll(self.now)
        if leave is not None and self.dice.random() < 0.8:
            self.broker.request(leave, self.now)
        self.actors.remove(actor)
        if actor.instance_id is not None:  # a successor with other topics would not be noticed
            self.add(actor.instance_id, actor.topics)

    def disturb(self) -> None:
        """Something that happens in a cluster."""
        self.chaos_at = self.now + self.dice.uniform(0, 12)
        actor = self.dice.choice(self.actors) if self.actors else None
        match self.dice.randint(0, 6):
            case 0 | 1 if len(self.actors) < 5:
                self.add(f"i{self.now}" if self.dice.random() < 0.3 else None)
            case 2 if actor is not None:
                self.remove(actor)
            case 3 if actor is not None:
                actor.stopped_until = self.now + self.dice.uniform(0, 2 * SESSION)
            case 4:
                self.broker.fail_over(self.now, self.broker.node + 1, self.dice.uniform(0, 2))
            case 5:
                self.grow(self.dice.choice(self.names))
            case _:
                pass

    def grow(self, name: str) -> None:
        """One more partition; everybody is told."""
        self.broker.topics.grow(name, self.broker.topics.by_name()[name].partitions + 1)
        for each in self.actors:
            self.tell(each)

    # -- time -------------------------------------------------------------------------------

    def step(self) -> None:
        """To the next moment at which something is due."""
        due = [actor.wake_at() for actor in self.actors]
        chaos_at = math.inf if self.calm else self.chaos_at
        self.now = max(self.now, min([*due, self.broker.wake_at(), chaos_at]))
        self.broker.advance(self.now)
        if self.now >= chaos_at:
            self.disturb()
        for actor in self.dice.sample(self.actors, len(self.actors)):
            self.move(actor)
            if actor.is_fenced:  # a coordinator that moved knows the one before it
                self.remove(actor)
        self.check()

    def move(self, actor: Actor) -> None:
        """All that is due of one member."""
        self.carry(actor)
        if self.now < actor.stopped_until:
            return
        self.hear(actor)
        for tps, at in list(actor.draining.items()):
            if at <= self.now and actor.draining.pop(tps, None) is not None:
                actor.mine -= tps
                actor.member.released(tps, self.now)
                self.take_events(actor)
        if actor.member.group_topics:
            self.tell(actor)
        request = actor.member.poll(self.now)
        if request is not None:
            assert actor.request is None, "two at once"
            self.send(actor, request)
        self.take_events(actor)

    def take_events(self, actor: Actor) -> None:
        """Drains take a while, at times longer than a rebalance may."""
        longest = 1.0 if self.calm or self.dice.random() < 0.8 else 1.5 * REBALANCE
        actor.take_events(self.now, self.dice.uniform(0, longest))

    def send(self, actor: Actor, request: Request) -> None:
        """It arrives, or the connection breaks."""
        actor.request = request
        at = self.now + self.dice.uniform(0, TRANSIT)
        if not self.calm and self.dice.random() < 0.05:
            actor.fails_at = at
        else:
            actor.arrives = at

    def carry(self, actor: Actor) -> None:
        """The coordinator gets the request, and its answer goes back."""
        if actor.arrives <= self.now and actor.request is not None:
            actor.arrives = math.inf
            found = self.broker.request(actor.request, self.now)
            if isinstance(found, Pending):
                actor.waiting = found
            else:
                self.reply(actor, found)
        if actor.waiting is not None and actor.waiting.answer is not None:
            self.reply(actor, actor.waiting.answer)
            actor.waiting = None

    def reply(self, actor: Actor, answer: Answer) -> None:
        at = self.now + self.dice.uniform(0, TRANSIT)
        if not self.calm and self.dice.random() < 0.05:
            actor.fails_at = at
        else:
            actor.answer, actor.answer_at = answer, at

    def hear(self, actor: Actor) -> None:
        """An answer, or the news that there is none."""
        request, actor_answer = actor.request, actor.answer
        if actor.fails_at <= self.now and request is not None:
            actor.request, actor.fails_at = None, math.inf
            actor.member.failed(request, self.now)
        elif actor.answer_at <= self.now and request is not None and actor_answer is not None:
            actor.request, actor.answer, actor.answer_at = None, None, math.inf
            actor.member.answered(request, actor_answer, self.now)
        self.take_events(actor)

    def check(self) -> None:
        """No partition is two members', unless one of them has to know that its time is over."""
        owners: dict[TopicPartition, Actor] = {}
        for actor in self.actors:
            if self.now < actor.member.held_until - 2 * TRANSIT:
                for tp in actor.mine:
                    assert owners.setdefault(tp, actor) is actor, f"{tp} has two owners"

    def run(self) -> None:
        """Disturbed for a while, then left alone."""
        end = self.now + CHAOS
        while self.now < end:
            self.step()
        self.calm, end = True, self.now + CALM
        if not self.actors:
            self.add()
        while self.now < end - CALM / 2:
            self.step()
        for name in self.names:  # a static leader that was away has not seen the last growth
            self.grow(name)
        while self.now < end:
            self.step()

    def check_rest(self) -> None:
        """Everything is somebody's, and nobody joins any more."""
        counts = self.broker.topics.by_name()
        wanted = {
            TopicPartition(topic, number)
            for actor in self.actors
            for topic in actor.topics
            for number in range(counts[topic].partitions)
        }
        assert set().union(*(actor.mine for actor in self.actors)) == wanted
        assert self.broker.classic["g"].state is State.STABLE
        for actor in self.actors:
            assert {tp.topic for tp in actor.mine} <= actor.topics
            assert not isinstance(actor.request, JoinGroup | SyncGroup)
            assert actor.member.epoch == self.broker.classic["g"].generation
            assert not actor.draining


def run(seed: int, kind: str) -> None:
    """One course."""
    world = World(seed, kind)
    try:
        world.run()
        world.check_rest()
    except AssertionError as error:
        raise AssertionError(f"seed {seed}, {kind}, at {world.now:.1f} s: {error}") from error


@settings(max_examples=10)  # each plays five minutes of a group
@given(st.integers(0, 2**32), st.sampled_from(sorted(KINDS)))
def test_group_shares_out_without_two_owners_and_comes_to_rest(seed: int, kind: str) -> None:
    """Whatever happens on the way."""
    run(seed, kind)


@pytest.mark.campaign
@pytest.mark.parametrize("kind", KINDS)
def test_many_groups_share_out_without_two_owners_and_come_to_rest(kind: str) -> None:
    """200 courses of each kind."""
    for seed in range(200):
        run(seed, kind)
