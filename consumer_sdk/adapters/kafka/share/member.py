"""A member of a share group (KIP-932): the coordinator names partitions to read beside other members. Pure.

The rules are those of a member of the consumer protocol, and `ConsumerMember` has them. These differ:

* Several members have a partition at a time, so no member waits for another one to give it up. Heartbeats do not name
  the partitions that the member reads.
* If it is fenced or unknown, the member loses its assignment, and joins again under the same id. It keeps the records
  that it has acquired until their locks end, or its sessions with the leaders do.
* The coordinator assigns a moment after a join, without a drain of other members. So a member without partitions asks
  again soon, not after a whole heartbeat interval (5 s by default).
* There are no static members, no patterns and no choice of an assignor.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping

from consumer_sdk.adapters.kafka.groups.consumer_member import ConsumerMember
from consumer_sdk.adapters.kafka.groups.member import Event, Member, TopicInfo, TopicPartition
from consumer_sdk.adapters.kafka.groups.messages import (
    ConsumerHeartbeat,
    ConsumerHeartbeatAnswer,
)
from consumer_sdk.adapters.kafka.share.messages import (
    ShareGroupHeartbeat,
    ShareGroupHeartbeatAnswer,
)

__all__ = ["ShareMember"]

FIRST_LOOK, LONGEST_LOOK = 0.1, 5.0
"""Seconds until a member that has nothing asks again; each time twice as long."""


class ShareMember(Member):
    """One membership of a share group.

    Args:
        topics: names.
        drain: seconds that the owner takes at most to drain what it reads no more.
        member_id: a UUID by default.
    """

    def __init__(
        self,
        group: str,
        *,
        topics: Collection[str],
        drain: float,
        rack: str | None = None,
        member_id: str | None = None,
    ) -> None:
        self._member = ConsumerMember(
            group, topics=topics, rebalance_timeout=drain, rack=rack, member_id=member_id
        )
        self._sent: tuple[ShareGroupHeartbeat, ConsumerHeartbeat] | None = None
        self._look = math.inf
        self._wait = FIRST_LOOK

    # -- what is said ---------------------------------------------------------------------------

    def poll(self, now: float) -> ShareGroupHeartbeat | None:  # type: ignore[override]  # another protocol's request
        if now >= self._look:
            self._look = math.inf
            self._member.hurry(now)
        request = self._member.poll(now)
        if not isinstance(request, ConsumerHeartbeat):
            return None
        said = ShareGroupHeartbeat(
            request.group, request.member_id, request.epoch, request.rack, request.topics
        )
        self._sent = said, request
        return said

    def answered(  # type: ignore[override]  # another protocol's answer
        self, request: ShareGroupHeartbeat, answer: ShareGroupHeartbeatAnswer, now: float
    ) -> None:
        if self._sent is not None and request is self._sent[0]:
            self._member.answered(self._sent[1], _as_heard(answer), now)
            self._look_again(now)

    def _look_again(self, now: float) -> None:
        has_nothing = not (self._member.held or self._member.unknown_topic_ids)
        if has_nothing and self._member.epoch > 0:
            self._look = now + self._wait
            self._wait = min(self._wait * 2, LONGEST_LOOK)
        else:
            self._look, self._wait = math.inf, FIRST_LOOK

    def failed(self, request: ShareGroupHeartbeat, now: float) -> None:  # type: ignore[override]  # another protocol's request
        if self._sent is not None and request is self._sent[0]:
            self._member.failed(self._sent[1], now)

    def wake_at(self) -> float:
        wake_at = self._member.wake_at()
        return wake_at if wake_at == math.inf else min(wake_at, self._look)

    def events(self) -> list[Event]:
        return self._member.events()

    # -- what it is -----------------------------------------------------------------------------

    @property
    def member_id(self) -> str:
        return self._member.member_id

    @property
    def epoch(self) -> int:
        return self._member.epoch

    @property
    def held_until(self) -> float:
        return self._member.held_until

    @property
    def held(self) -> frozenset[TopicPartition]:
        return self._member.held

    @property
    def unknown_topic_ids(self) -> frozenset[bytes]:
        return self._member.unknown_topic_ids

    @property
    def has_left(self) -> bool:
        return self._member.has_left

    # -- what the owner and the cluster say -----------------------------------------------------

    def released(self, tps: frozenset[TopicPartition], now: float) -> None:
        self._member.released(tps, now)

    def metadata_changed(self, topics: Mapping[str, TopicInfo], now: float) -> None:
        self._member.metadata_changed(topics, now)

    def leave(self, now: float) -> None:
        self._member.leave(now)


def _as_heard(answer: ShareGroupHeartbeatAnswer) -> ConsumerHeartbeatAnswer:
    return ConsumerHeartbeatAnswer(
        answer.error,
        answer.message,
        answer.member_id,
        answer.epoch,
        answer.interval,
        answer.assignment,
    )
