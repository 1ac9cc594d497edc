"""A share group at its coordinator (KIP-932): Kafka's `ShareGroup` and `SimpleAssignor`.

A member gets its target at once: several may read one partition, so that nobody has to give anything back before.
"""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field

from consumer_sdk.adapters.kafka.groups.messages import TopicPartitions
from consumer_sdk.adapters.kafka.share.messages import (
    ShareGroupHeartbeat,
    ShareGroupHeartbeatAnswer,
)
from consumer_sdk.testing.kafka.consumer_group import Topics
from consumer_sdk.testing.kafka.refusals import Code, RefusedError
from consumer_sdk.testing.kafka.server_assignors import Slot
from consumer_sdk.testing.kafka.timers import Timers

__all__ = ["ShareGroup", "assign_shared"]

LEAVES = -1


@dataclass(slots=True)
class ShareGroupMember:
    """A member as its coordinator knows it."""

    member_id: str
    epoch: int = 0
    former_epoch: int = 0
    topics: tuple[str, ...] = ()
    assigned: frozenset[Slot] = frozenset()


@dataclass(slots=True)
class ShareGroup:
    """One group.

    Args:
        session_timeout, heartbeat_interval: seconds.
        max_size: members at most.
        removed: is told whose sessions have ended.
    """

    group_id: str
    timers: Timers
    topics: Topics
    removed: set[str]
    session_timeout: float
    heartbeat_interval: float
    max_size: int
    epoch: int = 0
    target_epoch: int = 0
    target: dict[str, set[Slot]] = field(default_factory=dict)
    members: dict[str, ShareGroupMember] = field(default_factory=dict)
    seen: dict[bytes, int] = field(default_factory=dict)

    def heartbeat(self, request: ShareGroupHeartbeat) -> ShareGroupHeartbeatAnswer:
        """Kafka's `shareGroupHeartbeat`."""
        _check(request)
        if request.epoch == LEAVES:
            return self._leave(request.member_id)
        if len(self.members) >= self.max_size and request.member_id not in self.members:
            raise RefusedError(Code.GROUP_MAX_SIZE_REACHED)
        member = self._member(request)
        before = member.assigned
        if request.topics is not None and set(request.topics) != set(member.topics):
            member.topics = tuple(sorted(request.topics))
            self.epoch += 1
        self._retarget()
        self._follow(member)
        self._renew(member.member_id)
        is_told = request.epoch == 0 or request.topics is not None or member.assigned != before
        return ShareGroupHeartbeatAnswer(
            Code.NONE,
            member_id=member.member_id,
            epoch=member.epoch,
            interval=self.heartbeat_interval,
            assignment=_by_topic(member.assigned) if is_told else None,
        )

    def _member(self, request: ShareGroupHeartbeat) -> ShareGroupMember:
        member = self.members.get(request.member_id)
        if member is None:
            if request.epoch != 0:
                raise RefusedError(Code.UNKNOWN_MEMBER_ID)
            member = self.members[request.member_id] = ShareGroupMember(request.member_id)
            self.removed.discard(request.member_id)
        if request.epoch not in {0, member.epoch, member.former_epoch}:
            raise RefusedError(Code.FENCED_MEMBER_EPOCH)
        return member

    def _retarget(self) -> None:
        topics = self.topics.by_name()
        wants = {
            member_id: {topics[name].topic_id for name in member.topics if name in topics}
            for member_id, member in self.members.items()
        }
        wanted = {topic_id for topic_ids in wants.values() for topic_id in topic_ids}
        counts = {info.topic_id: info.partitions for info in topics.values()}
        seen = {topic_id: counts[topic_id] for topic_id in wanted}
        if seen != self.seen:
            self.seen = seen
            self.epoch += 1
        if self.epoch > self.target_epoch:
            self.target = assign_shared(wants, counts, self.target)
            self.target_epoch = self.epoch

    def _follow(self, member: ShareGroupMember) -> None:
        if member.epoch != self.target_epoch:
            member.former_epoch, member.epoch = member.epoch, self.target_epoch
            member.assigned = frozenset(self.target.get(member.member_id, ()))

    # -- leaving --------------------------------------------------------------------------------

    def _leave(self, member_id: str) -> ShareGroupHeartbeatAnswer:
        if member_id not in self.members:
            raise RefusedError(Code.UNKNOWN_MEMBER_ID)
        self._remove(member_id)
        return ShareGroupHeartbeatAnswer(Code.NONE, member_id=member_id, epoch=LEAVES, interval=0.0)

    def _remove(self, member_id: str) -> None:
        del self.members[member_id]
        self.target.pop(member_id, None)
        self.timers.cancel(("share session", self.group_id, member_id))
        self.epoch += 1

    def _renew(self, member_id: str) -> None:
        def end() -> None:
            self._remove(member_id)
            self.removed.add(member_id)

        self.timers.schedule(("share session", self.group_id, member_id), self.session_timeout, end)

    def load(self) -> None:
        """Another coordinator reads the log, which has all but the timers."""
        for member_id in self.members:
            self._renew(member_id)


def assign_shared(
    subscribers: Mapping[str, AbstractSet[bytes]],
    partitions: Mapping[bytes, int],
    former: Mapping[str, AbstractSet[Slot]],
) -> dict[str, set[Slot]]:
    """Each partition has somebody, each member about as many, and all members have one.

    Args:
        subscribers: member id → ids of the topics that it wants.
        partitions: topic id → how many partitions it has.
        former: what each was to have before; it keeps that where nobody has fewer.
    """
    found: dict[str, set[Slot]] = {member: set() for member in sorted(subscribers)}
    readers: dict[Slot, list[str]] = {}
    for topic in sorted(partitions):
        takers = [member for member in found if topic in subscribers[member]]
        for number in range(partitions[topic] if takers else 0):
            slot = topic, number
            owner = min(
                takers, key=lambda each: (len(found[each]), slot not in former.get(each, ()))
            )
            found[owner].add(slot)
            readers[slot] = [owner]
    for member, slots in found.items():
        wanted = [slot for slot in readers if slot[0] in subscribers[member]]
        if not slots and wanted:
            kept = former.get(member, ())
            slot = min(wanted, key=lambda each: (len(readers[each]), each not in kept, each))
            slots.add(slot)
            readers[slot].append(member)
    return found


def _check(request: ShareGroupHeartbeat) -> None:
    if request.member_id == "" or request.epoch < LEAVES:
        raise RefusedError(Code.INVALID_REQUEST)
    if request.epoch == 0 and not request.topics:
        raise RefusedError(Code.INVALID_REQUEST)


def _by_topic(slots: AbstractSet[Slot]) -> TopicPartitions:
    return {
        wanted: frozenset(number for topic, number in slots if topic == wanted)
        for wanted in sorted({topic for topic, _ in slots})
    }
