"""A classic member whose coordinator may answer anything, late, twice or never, and an owner that follows the events."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence

import pytest

from consumer_sdk.adapters.kafka.groups.assignors import (
    Assignor,
    CooperativeStickyAssignor,
    RangeAssignor,
)
from consumer_sdk.adapters.kafka.groups.classic_member import ClassicMember
from consumer_sdk.adapters.kafka.groups.member import (
    Assigned,
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
    Request,
    SyncAnswer,
    SyncGroup,
)
from consumer_sdk.adapters.kafka.groups.subscriptions import Assignment, write_assignment

SESSION, INTERVAL, REBALANCE = 10.0, 3.0, 30.0
TPS = [TopicPartition(topic, n) for topic in ("t", "u") for n in range(3)]
ERRORS = (14, 15, 16, 22, 25, 27, 7, 89)
KINDS: dict[str, Sequence[type[Assignor]]] = {
    "cooperative": (CooperativeStickyAssignor,),
    "eager": (RangeAssignor,),
    "upgrade": (CooperativeStickyAssignor, RangeAssignor),
}


class Course:
    """One membership."""

    def __init__(self, seed: int, kind: str) -> None:
        self.dice = random.Random(seed)
        self.names = [assignor.name for assignor in KINDS[kind]]
        self.is_eager = kind != "cooperative"
        self.member = ClassicMember(
            "g",
            [assignor() for assignor in KINDS[kind]],
            session_timeout=SESSION,
            rebalance_timeout=REBALANCE,
            heartbeat_interval=INTERVAL,
            instance_id=self.dice.choice(["i", None]),
        )
        self.now, self.generation = 100.0, 0
        self.owned: set[TopicPartition] = set()
        self.draining: set[TopicPartition] = set()
        self.pending: Request | None = None
        self.old: list[Request] = []
        self.is_refused = self.is_leaving = False
        self.see()

    def see(self) -> None:
        """The topics, one of which may have gone or grown."""
        topics = self.dice.choice([("t",), ("t", "u"), ("t", "u")])
        infos = {name: TopicInfo(name.encode(), self.dice.randint(1, 3)) for name in topics}
        self.member.metadata_changed(infos, self.now)

    # -- steps --------------------------------------------------------------------------------

    def step(self) -> None:
        """Something happens."""
        dice = self.dice
        match dice.randint(0, 9):
            case 0:
                self.see()
            case 1 if self.draining:
                some = frozenset(dice.sample(sorted(self.draining), 1))
                self.release(some)
            case 2 if self.old:
                self.again(dice.choice(self.old))
            case 3:
                self.now += dice.choice([0.1, 1.0, INTERVAL, SESSION, REBALANCE])
            case 4 if self.pending is not None:
                self.end(None)
            case 5 | 6 | 7 if self.pending is not None:
                self.end(self.answer(self.pending))
            case _:
                self.wait()
        self.follow()

    def release(self, tps: frozenset[TopicPartition]) -> None:
        """The owner has drained these."""
        self.draining -= tps
        self.owned -= tps
        self.member.released(tps, self.now)

    def wait(self) -> None:
        """Until something is due, or some time before."""
        due = self.member.wake_at()
        if due < math.inf:
            self.now = max(self.now, due)
        request = self.member.poll(self.now)
        if request is not None:
            assert self.pending is None, "two requests under way"
            self.pending = request
        elif self.pending is None and not self.member.has_left:
            assert self.member.wake_at() > self.now, "it is due, and sends nothing"

    def answer(self, request: Request) -> Answer:
        """Well or badly."""
        dice = self.dice
        error = dice.choice(ERRORS) if dice.random() < 0.3 else 0
        match request:
            case JoinGroup():
                return self.joined(request, error)
            case SyncGroup():
                given = Assignment(frozenset(dice.sample(TPS, dice.randint(0, 4))))
                return SyncAnswer(error, b"" if error else write_assignment(given))
            case Heartbeat():
                return HeartbeatAnswer(error)
        return LeaveAnswer(error)

    def joined(self, request: JoinGroup, error: int) -> JoinAnswer:
        """A generation, which it may lead; at times one that it knows."""
        if error or (request.member_id == "" and request.instance_id is None):
            return JoinAnswer(error or 79, member_id="" if error else "me")
        self.generation += self.dice.choice([0, 1, 1, 1, 2])
        leader = self.dice.choice(["me", "other"])
        name = self.dice.choice(self.names)
        own = ("me", request.instance_id, dict(request.protocols)[name])
        blind = leader == "me" and self.dice.random() < 0.2
        return JoinAnswer(
            0, self.generation, name, leader, "me", (own,) * (leader == "me"), skip_assignment=blind
        )

    def end(self, answer: Answer | None) -> None:
        """The answer comes, or none."""
        request, self.pending = self.pending, None
        assert request is not None
        self.old.append(request)
        if answer is None:
            self.member.failed(request, self.now)
        else:
            self.member.answered(request, answer, self.now)

    def again(self, request: Request) -> None:
        """An answer to a request that is over changes nothing."""
        before = self.state
        self.member.answered(request, self.answer(request), self.now)
        self.member.failed(request, self.now)
        assert (self.member.events(), self.state) == ([], before)

    @property
    def state(self) -> tuple[object, ...]:
        """What others see."""
        member = self.member
        return member.member_id, member.epoch, member.held, member.held_until, member.wake_at()

    # -- events -------------------------------------------------------------------------------

    def follow(self) -> None:
        """Does what the events say, and objects to what makes no sense."""
        for event in self.member.events():
            match event:
                case Assigned(tps):
                    assert tps, "assigns nothing"
                    assert not tps & self.owned, "assigned twice"
                    self.owned |= tps
                case Revoked(tps):
                    assert tps <= self.owned - self.draining, "revokes what is not there"
                    self.draining |= tps
                case Lost(tps):
                    assert tps == self.owned, "loses all or nothing"
                    self.owned, self.draining = set(), set()
                case Refused():
                    self.is_refused = True
                case _:
                    pass
        if not self.is_leaving:
            assert self.member.held == self.owned
            assert not self.owned or self.member.epoch >= 0, "holds without a membership"

    def run(self) -> None:
        """Some hundred steps, then it leaves."""
        for _ in range(300):
            self.step()
            assert not self.is_refused
        self.calm()
        self.is_leaving = True
        self.member.leave(self.now)
        for _ in range(10):
            if self.pending is not None:
                self.end(None)
            self.pending = self.member.poll(self.now)
            self.now += 1.0
        assert self.member.has_left

    def calm(self) -> None:
        """A coordinator that answers well brings it to rest: it heartbeats, and holds nothing that drains."""
        for _ in range(60):
            if self.draining:
                self.release(frozenset(self.draining))
            self.wait()
            if isinstance(self.pending, JoinGroup):
                self.end(self.joined(self.pending, 0))
            elif isinstance(self.pending, SyncGroup):
                self.end(SyncAnswer(0, write_assignment(Assignment(frozenset(TPS[:2])))))
            elif self.pending is not None:
                self.end(HeartbeatAnswer(0))
            self.follow()
        assert self.member.held_until > self.now
        assert not self.draining


@pytest.mark.parametrize("kind", KINDS)
def test_member_makes_sense_of_any_answer_in_any_order(kind: str) -> None:
    """Its events fit one another, it never spins, and it comes to rest."""
    for seed in range(60):
        course = Course(seed, kind)
        try:
            course.run()
        except AssertionError as error:
            raise AssertionError(f"seed {seed}, at {course.now:.1f}: {error}") from error
