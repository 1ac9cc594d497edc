"""A group of the consumer protocol (KIP-848) at its coordinator: Kafka's `ConsumerGroup` and `CurrentAssignmentBuilder`.

Three epochs: the group's grows when members, subscriptions or topics change; the target's says for which of them
the target was made; a member's follows the target once the member has given back what is another one's.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from enum import Enum
from typing import Protocol

from consumer_sdk.adapters.kafka.groups.member import TopicInfo
from consumer_sdk.adapters.kafka.groups.messages import (
    ConsumerHeartbeat,
    ConsumerHeartbeatAnswer,
    TopicPartitions,
)
from consumer_sdk.testing.kafka.refusals import Code, RefusedError, Removal
from consumer_sdk.testing.kafka.server_assignors import ASSIGNORS, Slot
from consumer_sdk.testing.kafka.timers import Timers

__all__ = ["ConsumerGroup", "ConsumerGroupMember", "Topics"]

LEAVES, LEAVES_FOR_A_WHILE = -1, -2
DEFAULT_ASSIGNOR = "uniform"


class Topics(Protocol):
    """The topics that a coordinator knows."""

    def by_name(self) -> Mapping[str, TopicInfo]:
        """All of them."""
        ...


class State(Enum):
    """Of a member on its way to the target."""

    STABLE = "Stable"
    UNREVOKED = "UnrevokedPartitions"
    UNRELEASED = "UnreleasedPartitions"


@dataclass(slots=True)
class ConsumerGroupMember:
    """A member as its coordinator knows it.

    Attributes:
        assigned: what it may have, and the member epoch with which it got that (KIP-1251).
        revoking: what it has to give back, and the same.
    """

    member_id: str
    instance_id: str | None = None
    epoch: int = 0
    former_epoch: int = 0
    state: State = State.STABLE
    rebalance_timeout: float = 0.0
    topics: tuple[str, ...] = ()
    pattern: str = ""
    assignor: str = ""
    assigned: dict[Slot, int] = field(default_factory=dict)
    revoking: dict[Slot, int] = field(default_factory=dict)

    def wants(self, topics: Mapping[str, TopicInfo]) -> set[bytes]:
        """The ids of the topics that it has subscribed to."""
        return {
            info.topic_id
            for name, info in topics.items()
            if name in self.topics or (self.pattern and re.fullmatch(self.pattern, name))
        }

    def turn(self, epoch: int, state: State) -> None:
        """Takes a step; the same epoch again counts as one."""
        self.former_epoch, self.epoch, self.state = self.epoch, epoch, state


@dataclass(slots=True)
class ConsumerGroup:
    """One group.

    Args:
        session_timeout, heartbeat_interval, assignment_interval: seconds; the last one is between two targets.
        max_size: members at most.
        removed: is told why members are removed that have not left.
    """

    group_id: str
    timers: Timers
    topics: Topics
    removed: dict[str, Removal]
    session_timeout: float
    heartbeat_interval: float
    assignment_interval: float
    max_size: int
    epoch: int = 0
    target_epoch: int = 0
    target_at: float | None = None
    target: dict[str, set[Slot]] = field(default_factory=dict)
    members: dict[str, ConsumerGroupMember] = field(default_factory=dict)
    static: dict[str, str] = field(default_factory=dict)
    seen: dict[str, TopicInfo] = field(default_factory=dict)

    # -- ConsumerGroupHeartbeat -----------------------------------------------------------------

    def heartbeat(self, request: ConsumerHeartbeat) -> ConsumerHeartbeatAnswer:
        """Kafka's `consumerGroupHeartbeat`."""
        _check(request)
        if request.epoch < 0:
            return self._leave(request)
        if len(self.members) >= self.max_size and request.member_id not in self.members:
            raise RefusedError(Code.GROUP_MAX_SIZE_REACHED)
        member = self._member(request)
        before = dict(member.assigned)
        has_changed = self._update(member, request)
        self._see_topics(has_changed=has_changed)
        self._retarget()
        self._reconcile(member, request.owned, has_changed=has_changed)
        self._renew(member.member_id)
        is_full = (
            request.rebalance_timeout is not None
            and (request.topics is not None or request.pattern is not None)
            and request.owned is not None
        )
        is_told = request.epoch == 0 or is_full or before.keys() != member.assigned.keys()
        return ConsumerHeartbeatAnswer(
            Code.NONE,
            member_id=member.member_id,
            epoch=member.epoch,
            interval=self.heartbeat_interval,
            assignment=_by_topic(member.assigned) if is_told else None,
        )

    def _member(self, request: ConsumerHeartbeat) -> ConsumerGroupMember:
        if request.instance_id is not None:
            return self._static_member(request, request.instance_id)
        member = self.members.get(request.member_id)
        if member is None:
            if request.epoch != 0:
                raise RefusedError(Code.UNKNOWN_MEMBER_ID)
            member = ConsumerGroupMember(request.member_id)
            self.members[member.member_id] = member
            self.removed.pop(member.member_id, None)
        _check_epoch(member, request)
        return member

    def _static_member(self, request: ConsumerHeartbeat, instance_id: str) -> ConsumerGroupMember:
        known = self.static.get(instance_id)
        if request.epoch != 0:
            member = self._known_static(request, instance_id)
            _check_epoch(member, request)
            return member
        if known is None:
            member = ConsumerGroupMember(request.member_id, instance_id)
        else:
            member = self.members[known]
            if member.epoch != LEAVES_FOR_A_WHILE:
                # Also where the member itself joins again: Kafka does not compare the ids.
                raise RefusedError(Code.UNRELEASED_INSTANCE_ID)
            self._remove(known)
            self.target[request.member_id] = self.target.pop(known, set())
            member.member_id = request.member_id
            member.epoch = member.former_epoch = 0
        self.members[member.member_id] = member
        self.static[instance_id] = member.member_id
        return member

    def _known_static(self, request: ConsumerHeartbeat, instance_id: str) -> ConsumerGroupMember:
        known = self.static.get(instance_id)
        if known is None:
            raise RefusedError(Code.UNKNOWN_MEMBER_ID)
        if known != request.member_id:
            raise RefusedError(Code.FENCED_INSTANCE_ID)
        return self.members[known]

    def _update(self, member: ConsumerGroupMember, request: ConsumerHeartbeat) -> bool:
        """Takes what the request tells; True if the subscription has changed."""
        before = member.topics, member.pattern
        if request.topics is not None:
            member.topics = tuple(sorted(request.topics))
        if request.pattern is not None:
            member.pattern = request.pattern
        if request.rebalance_timeout is not None:
            member.rebalance_timeout = request.rebalance_timeout
        if request.assignor is not None:
            member.assignor = request.assignor
        return before != (member.topics, member.pattern)

    # -- leaving --------------------------------------------------------------------------------

    def _leave(self, request: ConsumerHeartbeat) -> ConsumerHeartbeatAnswer:
        if request.instance_id is not None:
            member = self._known_static(request, request.instance_id)
        elif (found := self.members.get(request.member_id)) is not None:
            member = found
        else:
            raise RefusedError(Code.UNKNOWN_MEMBER_ID)
        if request.epoch == LEAVES_FOR_A_WHILE:
            member.epoch = LEAVES_FOR_A_WHILE
            member.revoking = {}
        else:
            self._fence(member.member_id)
            self.removed.pop(member.member_id, None)
        return ConsumerHeartbeatAnswer(
            Code.NONE, member_id=request.member_id, epoch=request.epoch, interval=0.0
        )

    def _fence(self, member_id: str, why: Removal = "session") -> None:
        """The member is out; its partitions go to others at their next heartbeats."""
        if member_id in self.members:
            self._remove(member_id)
            self.target.pop(member_id, None)
            self.epoch += 1
            self.removed[member_id] = why

    def _remove(self, member_id: str) -> None:
        member = self.members.pop(member_id)
        if member.instance_id is not None:
            self.static.pop(member.instance_id, None)
        self.timers.cancel(("session", self.group_id, member_id))
        self.timers.cancel(("rebalance", self.group_id, member_id))

    # -- the target -----------------------------------------------------------------------------

    def _see_topics(self, *, has_changed: bool) -> None:
        topics = self.topics.by_name()
        wanted = {topic for member in self.members.values() for topic in member.wants(topics)}
        seen = {name: info for name, info in topics.items() if info.topic_id in wanted}
        if has_changed or seen != self.seen:
            self.epoch += 1
        self.seen = seen

    def _retarget(self) -> None:
        now = self.timers.now
        is_too_soon = self.target_at is not None and now < self.target_at + self.assignment_interval
        if self.epoch <= self.target_epoch or is_too_soon:
            return
        topics = self.topics.by_name()
        wants = {member_id: member.wants(topics) for member_id, member in self.members.items()}
        counts = {info.topic_id: info.partitions for info in topics.values()}
        self.target = ASSIGNORS[self._assignor()](wants, counts, self.target)
        self.target_epoch, self.target_at = self.epoch, now

    def _assignor(self) -> str:
        votes = Counter(member.assignor for member in self.members.values() if member.assignor)
        return max(votes, key=lambda name: (votes[name], name)) if votes else DEFAULT_ASSIGNOR

    # -- the way of a member to the target --------------------------------------------------------

    def _reconcile(
        self, member: ConsumerGroupMember, owned: TopicPartitions | None, *, has_changed: bool
    ) -> None:
        """Kafka's `CurrentAssignmentBuilder.build`."""
        before = member.state, member.epoch, dict(member.revoking)
        match member.state:
            case State.STABLE if member.epoch == self.target_epoch:
                if has_changed:
                    self._drop_unwanted(member, owned)
            case State.UNREVOKED if _owns(owned, member.revoking):
                if has_changed:
                    self._drop_unwanted(member, owned)
            case _:
                self._step(member, owned)
        if before != (member.state, member.epoch, member.revoking):
            self._schedule_revocation(member)

    def _step(self, member: ConsumerGroupMember, owned: TopicPartitions | None) -> None:
        """Kafka's `computeNextAssignment`."""
        wanted = member.wants(self.topics.by_name())
        target = {slot for slot in self.target.get(member.member_id, ()) if slot[0] in wanted}
        kept = {slot: epoch for slot, epoch in member.assigned.items() if slot in target}
        revoking = {slot: epoch for slot, epoch in member.assigned.items() if slot not in target}
        held = self._held_by_others(member)
        missing = target - kept.keys()
        if revoking and _owns(owned, revoking):
            member.assigned, member.revoking = kept, revoking
            member.turn(member.epoch, State.UNREVOKED)
            return
        member.assigned = kept | dict.fromkeys(sorted(missing - held), self.target_epoch)
        member.revoking = {}
        member.turn(self.target_epoch, State.UNRELEASED if missing & held else State.STABLE)

    def _drop_unwanted(self, member: ConsumerGroupMember, owned: TopicPartitions | None) -> None:
        """Kafka's `updateCurrentAssignment`: the topics that are subscribed no more go at once."""
        wanted = member.wants(self.topics.by_name())
        unwanted = {slot: epoch for slot, epoch in member.assigned.items() if slot[0] not in wanted}
        if not unwanted:
            return
        revoking = member.revoking | unwanted
        member.assigned = {
            slot: epoch for slot, epoch in member.assigned.items() if slot not in unwanted
        }
        if _owns(owned, revoking):
            member.revoking = revoking
            member.turn(member.epoch, State.UNREVOKED)
        else:
            member.turn(member.epoch, member.state)

    def _held_by_others(self, member: ConsumerGroupMember) -> set[Slot]:
        others = (other for other in self.members.values() if other is not member)
        return {slot for other in others for slot in (*other.assigned, *other.revoking)}

    # -- timers ---------------------------------------------------------------------------------

    def _renew(self, member_id: str) -> None:
        key = ("session", self.group_id, member_id)
        self.timers.schedule(key, self.session_timeout, lambda: self._fence(member_id))

    def _schedule_revocation(self, member: ConsumerGroupMember) -> None:
        key = ("rebalance", self.group_id, member.member_id)
        if member.state is not State.UNREVOKED:
            self.timers.cancel(key)
            return
        member_id, epoch = member.member_id, member.epoch

        def too_late() -> None:
            found = self.members.get(member_id)
            if found is not None and found.epoch == epoch:
                self._fence(member_id, "rebalance")

        self.timers.schedule(key, member.rebalance_timeout, too_late)

    # -- commits and failover ---------------------------------------------------------------------

    def check_commit(self, member_id: str, epoch: int, slots: Sequence[Slot]) -> list[Code]:
        """The code of each partition, by Kafka's `validateOffsetCommit` since KIP-1251.

        Raises:
            RefusedError: the whole commit is refused.
        """
        if epoch < 0 and not self.members:
            return [Code.NONE for _ in slots]
        member = self.members.get(member_id)
        if member is None:
            raise RefusedError(Code.UNKNOWN_MEMBER_ID)
        if epoch > member.epoch:
            raise RefusedError(Code.STALE_MEMBER_EPOCH)
        if epoch == member.epoch:
            return [Code.NONE for _ in slots]
        return [_commit_code(member, slot, epoch) for slot in slots]

    def check_fetch(self, member_id: str | None, epoch: int) -> None:
        """Raises for who reads offsets with an epoch that is not the member's."""
        if member_id is None and epoch < 0:
            return
        member = self.members.get(member_id or "")
        if member is None:
            raise RefusedError(Code.UNKNOWN_MEMBER_ID)
        if member.epoch != epoch:
            raise RefusedError(Code.STALE_MEMBER_EPOCH)

    def load(self) -> None:
        """Another coordinator reads the log, which has all but the timers."""
        self.target_at = None
        for member in self.members.values():
            self._renew(member.member_id)
            if member.state is State.UNREVOKED:
                self._schedule_revocation(member)


def _check(request: ConsumerHeartbeat) -> None:
    if request.member_id == "" or request.epoch < LEAVES_FOR_A_WHILE:
        raise RefusedError(Code.INVALID_REQUEST)
    if request.epoch == LEAVES_FOR_A_WHILE and request.instance_id is None:
        raise RefusedError(Code.INVALID_REQUEST)
    if request.epoch == 0:
        has_topics = request.topics or request.pattern
        if request.rebalance_timeout is None or not has_topics or request.owned is None:
            raise RefusedError(Code.INVALID_REQUEST)
        if any(request.owned.values()):
            raise RefusedError(Code.INVALID_REQUEST)
    if request.assignor is not None and request.assignor not in ASSIGNORS:
        raise RefusedError(Code.UNSUPPORTED_ASSIGNOR)
    if request.pattern:
        try:
            re.compile(request.pattern)
        except re.error as error:
            raise RefusedError(Code.INVALID_REGULAR_EXPRESSION) from error


def _check_epoch(member: ConsumerGroupMember, request: ConsumerHeartbeat) -> None:
    """Kafka's `throwIfConsumerGroupMemberEpochIsInvalid`; epoch 0 joins again at any time."""
    if request.epoch in (0, member.epoch):
        return
    # The answer with the new epoch may have been lost: who has no more than what it told may go on.
    is_one_behind = request.epoch < member.epoch and request.epoch == member.former_epoch
    if not is_one_behind or request.owned is None:
        raise RefusedError(Code.FENCED_MEMBER_EPOCH)
    if not _slots(request.owned) <= member.assigned.keys():
        raise RefusedError(Code.FENCED_MEMBER_EPOCH)


def _commit_code(member: ConsumerGroupMember, slot: Slot, epoch: int) -> Code:
    since = member.assigned.get(slot, member.revoking.get(slot))
    return Code.NONE if since is not None and epoch >= since else Code.STALE_MEMBER_EPOCH


def _owns(owned: TopicPartitions | None, revoking: Mapping[Slot, int]) -> bool:
    """Whether the member has any of these still; who does not say has them."""
    return owned is None or bool(_slots(owned) & revoking.keys())


def _slots(partitions: TopicPartitions) -> AbstractSet[Slot]:
    return {(topic, number) for topic, numbers in partitions.items() for number in numbers}


def _by_topic(slots: Mapping[Slot, int]) -> TopicPartitions:
    topics = sorted({topic for topic, _ in slots})
    return {
        wanted: frozenset(number for topic, number in slots if topic == wanted) for wanted in topics
    }
