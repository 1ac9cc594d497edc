"""A broker's side of share groups: sessions, fetches that wait, acks, and the share partitions that it leads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf
from typing import Protocol

from consumer_sdk.adapters.kafka.share.messages import (
    CLOSE_EPOCH,
    OPEN_EPOCH,
    AckBatch,
    AcknowledgedPartition,
    AckType,
    FetchedPartition,
    ShareAcknowledge,
    ShareAcknowledgeAnswer,
    ShareFetch,
    ShareFetchAnswer,
    TopicIdPartition,
)
from consumer_sdk.testing.kafka.refusals import Code, RefusedError
from consumer_sdk.testing.kafka.share_partition import SharePartition
from consumer_sdk.testing.kafka.share_sessions import Key, ShareSession, ShareSessions, next_epoch

__all__ = ["PendingFetch", "ShareBroker"]


LONGEST_ID = 36
"""Of a member: a UUID as text."""


class Cluster(Protocol):
    """What a broker knows of the others."""

    def leader(self, tp: TopicIdPartition) -> tuple[int, int]:
        """The node that leads the partition, and its epoch.

        Raises:
            RefusedError: there is no such topic, or no such partition.
        """
        ...

    def load(self, group: str, tp: TopicIdPartition) -> SharePartition:
        """The share partition as it is stored."""
        ...

    def lock_timeout(self, group: str) -> float:
        """Seconds that the group's records stay acquired."""
        ...


@dataclass(slots=True)
class PendingFetch:
    """A fetch that waits for records.

    Attributes:
        until: when it waits no longer.
        acked: what became of the acks that came with it.
        answer: None for as long as it waits.
    """

    request: ShareFetch
    session: ShareSession
    until: float
    acked: Mapping[TopicIdPartition, Code]
    answer: ShareFetchAnswer | None = None

    @property
    def is_outrun(self) -> bool:
        """Another request of the session has come meanwhile."""
        epoch = self.request.epoch
        return epoch != OPEN_EPOCH and self.session.epoch != next_epoch(epoch)


@dataclass(slots=True)
class ShareBroker:
    """One broker.

    Attributes:
        partitions: that it leads, and somebody has read since.
        waiting: fetches; also those whose connection is gone, as Kafka keeps them.
    """

    node: int
    cluster: Cluster
    sessions: ShareSessions
    partitions: dict[tuple[str, TopicIdPartition], SharePartition] = field(default_factory=dict)
    waiting: list[PendingFetch] = field(default_factory=list)

    # -- requests -------------------------------------------------------------------------------

    def fetch(
        self, request: ShareFetch, connection: str, now: float
    ) -> ShareFetchAnswer | PendingFetch:
        """Carries out the acks, then acquires.

        Raises:
            RefusedError: the request as a whole is refused.
        """
        _check_member(request)
        if request.has_renewals and (
            request.max_wait or request.min_bytes or request.max_bytes or request.max_records
        ):
            raise RefusedError(Code.INVALID_REQUEST)
        session = self.sessions.fetched(request, connection)
        acked = self._acknowledge_all(request, now)
        if request.epoch == CLOSE_EPOCH:
            self._finish(request)
            self._end(session.key)
            self._serve(now)
            return self._answer(request, acked, {})
        pending = PendingFetch(request, session, now + request.max_wait, acked)
        # What is released takes a moment to be stored: this fetch does not find it, unless it has to wait.
        pending.answer = self._attempt(pending, now)
        if acked:
            self._finish(request)
        if pending.answer is None:
            self.waiting.append(pending)
        if acked:
            self._serve(now)
        return pending if pending.answer is None else pending.answer

    def acknowledge(self, request: ShareAcknowledge, now: float) -> ShareAcknowledgeAnswer:
        """Carries out the acks.

        Raises:
            RefusedError: the request as a whole is refused.
        """
        _check_member(request)
        session = self.sessions.acknowledged(request)
        acked = self._acknowledge_all(request, now)
        self._finish(request)
        if request.epoch == CLOSE_EPOCH:
            self._end(session.key)
        self._serve(now)
        partitions = {
            tp: AcknowledgedPartition(code, code.name if code else "", self._told_leader(tp, code))
            for tp, code in acked.items()
        }
        return ShareAcknowledgeAnswer(
            lock_timeout=self.cluster.lock_timeout(request.group), partitions=partitions
        )

    def _acknowledge_all(
        self, request: ShareFetch | ShareAcknowledge, now: float
    ) -> dict[TopicIdPartition, Code]:
        found: dict[TopicIdPartition, Code] = {}
        for tp, acks in request.topics.items():
            if acks:
                try:
                    found[tp] = self._acknowledge(request, tp, acks, now)
                except RefusedError as error:
                    found[tp] = error.code
        return found

    def _acknowledge(
        self,
        request: ShareFetch | ShareAcknowledge,
        tp: TopicIdPartition,
        acks: Sequence[AckBatch],
        now: float,
    ) -> Code:
        self.cluster.leader(tp)  # is there such a partition?
        _check_acks(acks, has_renewals=request.has_renewals)
        partition = self.partitions.get((request.group, tp))
        if partition is None:
            return Code.UNKNOWN_TOPIC_OR_PARTITION
        return partition.acknowledge(request.member_id, acks, now, finishes=False)

    def _finish(self, request: ShareFetch | ShareAcknowledge) -> None:
        """The acks of the request are stored."""
        for tp in request.topics:
            if (partition := self.partitions.get((request.group, tp))) is not None:
                partition.finish()

    # -- fetches --------------------------------------------------------------------------------

    def _serve(self, now: float) -> None:
        """Answers the fetches that find something, or have waited long enough."""
        still: list[PendingFetch] = []
        for pending in self.waiting:
            pending.answer = self._attempt(pending, now)
            if pending.answer is None:
                still.append(pending)
        self.waiting = still

    def _attempt(self, pending: PendingFetch, now: float) -> ShareFetchAnswer | None:
        request, tps = pending.request, pending.session.partitions
        found: dict[TopicIdPartition, FetchedPartition] = {}
        room = request.max_records
        turn = max(request.epoch, 0) % max(len(tps), 1)
        for tp in tps[turn:] + tps[:turn] if request.max_records and request.max_bytes else []:
            fetched = self._fetched(request, tp, room, len(tps), now)
            if fetched is not None:
                found[tp] = fetched
                room -= sum(each.last - each.first + 1 for each in fetched.acquired)
        is_idle = not tps or not request.max_records or not request.max_bytes
        if not found and not is_idle and now < pending.until:
            return None
        if pending.is_outrun:
            return ShareFetchAnswer(Code.INVALID_SHARE_SESSION_EPOCH)
        pending.session.served([tp for tp, fetched in found.items() if fetched.acquired])
        return self._answer(request, pending.acked, found)

    def _fetched(
        self, request: ShareFetch, tp: TopicIdPartition, room: int, count: int, now: float
    ) -> FetchedPartition | None:
        """What there is for the member; None for nothing."""
        try:
            partition = self._partition(request.group, tp)
        except RefusedError as error:
            leader = self._told_leader(tp, error.code)
            return FetchedPartition(error.code, error.code.name, leader=leader)
        partition.expire(now)
        if not partition.can_acquire():
            return None
        offset = partition.next_offset()
        if offset < partition.log.start:
            partition.log_start_moved()
            offset = partition.next_offset()
        batches = partition.log.read(offset, request.max_bytes // count)
        acquired = partition.acquire(
            request.member_id,
            batches,
            offset,
            now,
            max_records=room,
            batch_size=request.batch_size,
            mode=request.acquire_mode,
        )
        if not acquired:
            return None
        return FetchedPartition(
            records=b"".join(batch.data for batch in batches), acquired=tuple(acquired)
        )

    def _partition(self, group: str, tp: TopicIdPartition) -> SharePartition:
        node, _ = self.cluster.leader(tp)
        if node != self.node:
            raise RefusedError(Code.NOT_LEADER_OR_FOLLOWER)
        if (group, tp) not in self.partitions:
            self.partitions[group, tp] = self.cluster.load(group, tp)
        return self.partitions[group, tp]

    def _answer(
        self,
        request: ShareFetch,
        acked: Mapping[TopicIdPartition, Code],
        found: Mapping[TopicIdPartition, FetchedPartition],
    ) -> ShareFetchAnswer:
        partitions = dict(found)
        for tp, code in acked.items():
            fetched = partitions.get(tp, FetchedPartition())
            message = code.name if code else ""
            partitions[tp] = replace(fetched, ack_error=code, ack_message=message)
        return ShareFetchAnswer(
            lock_timeout=self.cluster.lock_timeout(request.group), partitions=partitions
        )

    def _told_leader(self, tp: TopicIdPartition, code: Code) -> tuple[int, int]:
        """Of the partition, for who has asked the wrong one."""
        return self.cluster.leader(tp) if code is Code.NOT_LEADER_OR_FOLLOWER else (-1, -1)

    # -- sessions -------------------------------------------------------------------------------

    def disconnected(self, connection: str, now: float) -> None:
        """A connection is gone: the session that was opened over it ends.

        If no member of the group has one here by then, the broker forgets the group's share partitions.
        """
        key, is_current = self.sessions.disconnected(connection)
        if key is None:
            return
        if is_current:
            self._end(key)
        if not self.sessions.has_group(key[0]):
            self._drop(lambda group, _: group == key[0])
        self._serve(now)

    def _end(self, key: Key) -> None:
        """What the member has acquired of the session's partitions is available again."""
        session = self.sessions.removed(key)
        for tp in session.partitions if session else ():
            if (partition := self.partitions.get((key[0], tp))) is not None:
                partition.release(key[1])

    # -- time and place -------------------------------------------------------------------------

    def wake_at(self) -> float:
        """When time alone changes something next; ``inf`` for never."""
        locks = (partition.wake_at() for partition in self.partitions.values())
        waits = (pending.until for pending in self.waiting)
        return min(min(locks, default=inf), min(waits, default=inf))

    def advance(self, now: float) -> None:
        """Locks end, and fetches have waited long enough."""
        have_ended = [partition.expire(now) for partition in self.partitions.values()]
        if any(have_ended) or any(pending.until <= now for pending in self.waiting):
            self._serve(now)

    def arrived(self, now: float) -> None:
        """There are new records, or the cluster has changed."""
        self._serve(now)

    def resign(self, tp: TopicIdPartition, now: float) -> None:
        """Another broker leads the partition."""
        self._drop(lambda _, each: each == tp)
        self._serve(now)

    def _drop(self, is_meant: _Choice) -> None:
        self.partitions = {
            (group, tp): partition
            for (group, tp), partition in self.partitions.items()
            if not is_meant(group, tp)
        }

    def restart(self) -> None:
        """It knows nobody, and what it led is to be read again."""
        self.sessions.clear()
        self.partitions.clear()
        self.waiting.clear()


class _Choice(Protocol):
    def __call__(self, group: str, tp: TopicIdPartition, /) -> bool: ...


def _check_member(request: ShareFetch | ShareAcknowledge) -> None:
    if not 0 < len(request.member_id) <= LONGEST_ID:
        raise RefusedError(Code.INVALID_REQUEST)


def _check_acks(acks: Sequence[AckBatch], *, has_renewals: bool) -> None:
    """Kafka's `validateAcknowledgementBatches`."""
    end = -1
    for ack in acks:
        count = ack.last - ack.first + 1
        is_in_order = end <= ack.first <= ack.last
        if not is_in_order or len(ack.types) not in {1, count}:
            raise RefusedError(Code.INVALID_REQUEST)
        if any(kind not in list(AckType) for kind in ack.types):
            raise RefusedError(Code.INVALID_REQUEST)
        if AckType.RENEW in ack.types and not has_renewals:
            raise RefusedError(Code.INVALID_REQUEST)
        end = ack.last
