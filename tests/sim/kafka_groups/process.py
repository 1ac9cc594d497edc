"""A process of a group: what runs a member, and drains, commits and gives back what the member says."""

from __future__ import annotations

from collections.abc import Mapping
from math import inf
from typing import TYPE_CHECKING

from consumer_sdk.adapters.kafka.groups.member import (
    Assigned,
    CoordinatorLost,
    Event,
    Lost,
    Member,
    Refused,
    Revoked,
    TopicInfo,
    TopicPartition,
)
from consumer_sdk.adapters.kafka.groups.messages import Answer, JoinGroup, Request, SyncGroup
from consumer_sdk.testing.kafka import Code, OffsetCommit
from tests.sim.kafka_groups.plan import Life
from tests.sim.stoppable import Stoppable

if TYPE_CHECKING:
    from tests.sim.kafka_groups.scene import GroupScene

__all__ = ["Process"]

LOOKUP_PATIENCE = 0.5
METADATA_INTERVAL, UNKNOWN_INTERVAL = 5.0, 0.3
COMMITS = 1.5
"""Mean seconds between two commits."""


class Process(Stoppable):
    """One, from its start to its end.

    Attributes:
        owned: assigned, and not revoked.
        draining: revoked, and not given back.
        topic_ids: of what was assigned; a topic that is made again is another one. Classic members know names only.
        is_eager: it gives all back before each rebalance.
        is_refused: the group does not take it.
    """

    def __init__(self, scene: GroupScene, name: str, slot: int, member: Member, life: Life) -> None:
        super().__init__(scene.agenda)
        self.scene, self.name, self.slot, self.member, self.life = scene, name, slot, member, life
        self.instance_id = scene.plan.instance_id(slot)
        is_old = scene.plan.assignors_of(slot) != scene.plan.assignors
        self.is_eager = scene.plan.protocol == "eager" or is_old
        self.owned: set[TopicPartition] = set()
        self.draining: set[TopicPartition] = set()
        self.topic_ids: dict[TopicPartition, bytes] = {}
        self.is_refused, self.is_leaving = False, False
        self._request: Request | None = None
        self._number = 0
        self._node: int | None = None
        self._topics: Mapping[str, TopicInfo] | None = None
        self._committing: dict[int, frozenset[TopicPartition]] = {}
        self._number_of_commits = 0
        self._drains_ended: set[TopicPartition] = set()
        self._asks = False
        self._wakes_at = inf
        self._idle: tuple[float, int] = (-1.0, 0)

    @property
    def is_working(self) -> bool:
        """It may hand out records of what it holds."""
        return self.is_alive and not self.is_leaving

    def holds(self, tp: TopicPartition, now: float) -> bool:
        """It may hand out records of this one, as far as it knows."""
        return self.is_working and tp in self.member.held and now < self.member.held_until

    @property
    def waits_for_group(self) -> bool:
        """A classic request is under way that waits for all members."""
        return isinstance(self._request, JoinGroup | SyncGroup)

    # -- life -----------------------------------------------------------------------------------

    def start(self) -> None:
        """Asks for topics and coordinator, then joins."""
        self.tell("starts")
        self._look_topics()
        self._look_up()
        self._commit_later()

    def end(self) -> None:
        """As its life says: it is gone at once, or drains and leaves."""
        if not self.is_alive or self.is_leaving:
            return
        if self.life.ending == "kill":
            self.kill()
        else:
            self.run(self._leave)

    def kill(self) -> None:
        """It is gone, wherever it is."""
        if self.is_alive:
            self.tell("is killed")
            self.is_alive = False

    def leave(self) -> None:
        """Drains nothing any more, and leaves."""
        self.run(self._leave)

    def _leave(self) -> None:
        if self.is_leaving:
            return
        self.tell("leaves")
        self.is_leaving = True
        self.owned.clear()
        self.draining.clear()
        self.member.leave(self.now)
        self._work()

    def _wake_up(self) -> None:
        self.scene.ledger.check(self)

    def tell(self, what: str, /) -> None:
        """Traces it."""
        self.scene.tell(f"{self.name} {what}")

    # -- the member -----------------------------------------------------------------------------

    def _work(self) -> None:
        """Sends what is to be sent, and does what has happened."""
        self._take_events()
        if self.is_alive and self._is_ready:
            request = self.member.poll(self.now)
            if self._request is not None:
                assert request is None, f"{self.name} has two requests under way"
            elif request is not None:
                self._send(request)
            else:
                self._check_idle()
            self._take_events()
        if self.is_alive:
            self._check_end()
            self._look_group_topics()
            self.scene.ledger.check(self)
            self._wake_later()

    @property
    def _is_ready(self) -> bool:
        return self._node is not None and self._topics is not None

    def _check_end(self) -> None:
        if self.is_refused or (self.is_leaving and self.member.has_left):
            self.tell("is refused" if self.is_refused else "has left")
            self.is_alive = False
            self.scene.ended(self)

    def _check_idle(self) -> None:
        """Who wants to be woken has something to do then."""
        at, count = self._idle
        self._idle = (self.now, count + 1 if at == self.now else 1)
        assert self._idle[1] < 50, f"{self.name} is woken again and again, and sends nothing"

    def _wake_later(self) -> None:
        at = self.member.wake_at()
        if self._is_ready and at < self._wakes_at:
            self._wakes_at = at
            self.scene.agenda.at(at, lambda: self._wake(at))

    def _wake(self, at: float) -> None:
        if self._wakes_at == at:
            self._wakes_at = inf
            self.run(self._work)

    def _send(self, request: Request) -> None:
        assert self._node is not None
        self.tell(f"sends {request}")
        self.scene.ledger.sent(self, request)
        self._request, self._number = request, self._number + 1
        number = self._number
        self.scene.network.send(
            self.slot,
            self._node,
            request,
            lambda answer: self.run(lambda: self._heard(number, request, answer)),
        )
        patience = self.scene.plan.request_timeout
        if isinstance(request, JoinGroup):
            patience += self.scene.plan.rebalance_timeout
        if self.scene.network.is_faulty and self.scene.chance.random() < self.scene.plan.lost / 4:
            patience *= self.scene.chance.random()  # the connection breaks
        self.after(patience, lambda: self._given_up(number, request))

    def _heard(self, number: int, request: Request, answer: Answer) -> None:
        is_awaited = number == self._number and self._request is request
        if is_awaited:
            self._request = None
            self.tell(f"hears {answer}")
            self.scene.ledger.heard(self, answer)
        elif not self._is_given_again():
            return
        else:
            self.tell(f"hears once more {answer}")
        self.member.answered(request, answer, self.now)
        if is_awaited and self._is_given_again():
            self.member.answered(request, answer, self.now)
        self._work()

    def _is_given_again(self) -> bool:
        return self.scene.chance.random() < self.scene.plan.repeated

    def _given_up(self, number: int, request: Request) -> None:
        if number == self._number and self._request is request:
            self._request = None
            self.tell("has no answer")
            self.member.failed(request, self.now)
            self._work()

    # -- events ---------------------------------------------------------------------------------

    def _take_events(self) -> None:
        for event in self.member.events():
            self._take(event)
        if not self.is_leaving:
            held = self.owned | self.draining
            assert self.member.held == held, (
                f"{self.name} holds {set(self.member.held)}; its events say {held}"
            )

    def _take(self, event: Event) -> None:
        self.tell(f"is told {event}")
        match event:
            case Assigned(tps):
                assert not tps & (self.owned | self.draining), f"{self.name} has these already"
                self.owned |= tps
                self._note_topics(tps)
            case Revoked(tps):
                assert tps <= self.owned or self.is_leaving, f"{self.name} has not got these"
                self.scene.ledger.revoked(self, tps)
                self._revoke(tps)
            case Lost(tps):
                self.owned -= tps
                self.draining -= tps
                self._drains_ended -= tps
            case CoordinatorLost():
                self._node = None
                self._look_up()
            case Refused():
                self.is_refused = True
                self.owned.clear()
                self.draining.clear()

    def _note_topics(self, tps: frozenset[TopicPartition]) -> None:
        for tp in tps:
            assert self._topics is not None, (
                f"{self.name} has partitions of topics that it does not know"
            )
            if self.scene.plan.protocol == "consumer" and tp.topic in self._topics:
                self.topic_ids[tp] = self._topics[tp.topic].topic_id

    def _revoke(self, tps: frozenset[TopicPartition]) -> None:
        if self.is_leaving:
            return
        self.owned -= tps
        self.draining |= tps
        mean = self.scene.plan.drain
        duration = self.scene.chance.expovariate(1 / mean) if mean else 0.0
        if self.scene.chance.random() < 0.03:
            duration *= 10
        # An adapter ends a drain when the rebalance timeout is over, or about that.
        duration = min(duration, 2 * self.scene.plan.rebalance_timeout)
        if not self.scene.network.is_faulty:
            duration = min(duration, self.scene.plan.rebalance_timeout / 2)
        self.after(duration, lambda: self._drained(tps))

    def _drained(self, tps: frozenset[TopicPartition]) -> None:
        rest = tps & self.draining
        if rest and not self.is_leaving:
            if self.scene.chance.random() < 0.5:
                self._commit(rest)
            self._drains_ended |= rest
            self._release()

    def _release(self) -> None:
        """Gives back what is drained, and has no commit in the air: that could arrive after the next owner's."""
        rest = frozenset(self._drains_ended & self.draining)
        rest = rest.difference(*self._committing.values())
        if rest and not self.is_leaving:
            self.tell(f"gives back {sorted(rest)}")
            self._drains_ended -= rest
            self.draining -= rest
            self.member.released(rest, self.now)
            self._work()

    # -- commits --------------------------------------------------------------------------------

    def _commit_later(self) -> None:
        self.after(self.scene.chance.expovariate(1 / COMMITS), self._commit_some)

    def _commit_some(self) -> None:
        now = self.now
        tps = [tp for tp in sorted(self.owned | self.draining) if self.holds(tp, now)]
        if tps and not self.is_leaving:
            self._commit(frozenset(tps))
        if not self.is_leaving:
            self._commit_later()

    def _commit(self, tps: frozenset[TopicPartition]) -> None:
        member = self.member
        if self._node is None or self.now >= member.held_until:
            return
        self._number_of_commits += 1
        number = self._number_of_commits
        self._committing[number] = tps

        def finish() -> None:
            if self._committing.pop(number, None):
                self._release()

        def heard(codes: dict[TopicPartition, Code]) -> None:
            self.tell(f"commits {[(*tp, code.name) for tp, code in codes.items()]}")
            self.run(finish)

        offsets = dict.fromkeys(sorted(tps), int(self.now * 1000))
        commit = OffsetCommit(
            self.scene.group, member.member_id, member.epoch, self.instance_id, offsets
        )
        self.scene.committing[id(commit)] = (commit, self, dict(self.topic_ids), self.now)
        self.scene.network.commit(self.slot, self._node, commit, heard)
        self.after(self.scene.plan.request_timeout, finish)

    # -- what is asked beside -------------------------------------------------------------------

    def _look_up(self) -> None:
        """Asks for the coordinator until there is an answer, which may be an old one."""
        if self._node is not None or not self.is_alive:
            return
        self.scene.network.ask(self.slot, lambda: self.run(self._found))
        self.after(LOOKUP_PATIENCE, self._look_up)

    def _found(self) -> None:
        if self._node is None:
            self._node = self.scene.coordinator_node()
            self._work()

    def _look_topics(self) -> None:
        self.scene.network.ask(self.slot, lambda: self.run(self._topics_found))
        is_hurried = self._topics is None or bool(self.member.unknown_topic_ids)
        self.after(UNKNOWN_INTERVAL if is_hurried else METADATA_INTERVAL, self._look_topics)

    def _look_group_topics(self) -> None:
        wanted = self.member.group_topics
        if wanted and not self._asks:
            self._asks = True
            self.scene.network.ask(self.slot, lambda: self.run(lambda: self._group_topics(wanted)))
            self.after(LOOKUP_PATIENCE, self._ask_again)

    def _ask_again(self) -> None:
        self._asks = False
        self._look_group_topics()

    def _group_topics(self, wanted: frozenset[str]) -> None:
        topics = self.scene.topics.by_name()
        self.member.group_metadata_changed({name: topics.get(name) for name in wanted}, self.now)
        self._work()

    def _topics_found(self) -> None:
        topics = self.scene.subscribed_topics()
        if topics != self._topics:
            self._topics = topics
            self.member.metadata_changed(topics, self.now)
            self._work()
