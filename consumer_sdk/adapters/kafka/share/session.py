"""A share session: the requests of one member to one leader of a share group's partitions, as a state machine. Pure.

The rules are those of Java's ``ShareSessionHandler`` and ``ShareConsumeRequestManager``, unless noted otherwise:

- A fetch of epoch 0 opens a session, and may carry no acknowledgements. Each further request, also one that only
  acknowledges, carries the next epoch; 1 follows 2^31 - 1. One request is under way at a time, because a broker would
  refuse the second one if it came before the first.
- A request names the partitions that are new in the session, and those that have acknowledgements. The next fetch
  forgets partitions that are no longer read. It also forgets a partition that was only acknowledged, because naming it
  has added it to the session.
- After an error of the session (122, 123, 133), and after a request without an answer, the session is opened anew.
  Acquired records stay acquired, unless the broker itself has ended the session; the answer to the next acknowledgement
  tells.
- Acknowledgements of a partition come in groups. All waiting ones go into the next request, because a lock may end
  while its acknowledgement waits. The broker accepts all acknowledgements of a partition in a request, or none. Refused
  ones (121) are sent again, a group at a time. A group that is refused alone is halved until the valid acknowledgements
  are found; the others were late.
- Acknowledgements go with a fetch if one is due, and otherwise by themselves. Renewals go by themselves, because a
  broker acquires no records for a request with renewals (KIP-1222).

``now`` is in seconds of any clock that never goes back.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import NamedTuple, TypeAlias

from consumer_sdk.adapters.kafka.share.locks import AckGroup, Locks, ack_batches
from consumer_sdk.adapters.kafka.share.messages import (
    CLOSE_EPOCH,
    OPEN_EPOCH,
    AckBatch,
    AcknowledgedPartition,
    AckType,
    AcquiredRange,
    AcquireMode,
    FetchedPartition,
    ShareAcknowledge,
    ShareAcknowledgeAnswer,
    ShareFetch,
    ShareFetchAnswer,
    TopicIdPartition,
)
from consumer_sdk.errors import TransientAdapterError

__all__ = ["TOO_MANY_SESSIONS", "FetchLimits", "Received", "ShareSession"]

LAST_EPOCH = 2**31 - 1
SESSION_NOT_FOUND, INVALID_SESSION_EPOCH, TOO_MANY_SESSIONS = 122, 123, 133
INVALID_RECORD_STATE, INVALID_REQUEST = 121, 42
SESSION_ENDED = frozenset({SESSION_NOT_FOUND, INVALID_SESSION_EPOCH})
DOUBTED = frozenset({INVALID_RECORD_STATE, INVALID_REQUEST})
"""Some record of the group is not held any more: its lock has ended, or it is not even in flight."""
MOVED = frozenset({3, 6, 74, 100})
"""Unknown topic, by name; another leader; of another epoch; unknown topic, by id: nothing is held any more."""
FULL_WAIT, RECENT = 0.01, 1.0
"""Seconds that a fetch may wait where a partition is full; for which that was a moment ago."""
REST = 0.5
"""Seconds until a renewal that failed is tried again."""

Request: TypeAlias = ShareFetch | ShareAcknowledge
Groups: TypeAlias = dict[TopicIdPartition, list[AckGroup]]
Queues: TypeAlias = dict[TopicIdPartition, deque[AckGroup]]


@dataclass(frozen=True, slots=True)
class FetchLimits:
    """What a fetch says besides the partitions.

    Attributes:
        max_wait: seconds that the broker may wait for records while nothing is held.
        busy_wait: the same while something is: its acknowledgement waits behind the fetch.
    """

    max_wait: float = 0.5
    busy_wait: float = 0.1
    min_bytes: int = 1
    max_bytes: int = 50 << 20
    batch_size: int = 500
    acquire_mode: AcquireMode = AcquireMode.BATCH_OPTIMIZED


class Received(NamedTuple):
    """What an answer brought.

    Attributes:
        error: of the request as a whole; the session's own errors are dealt with here.
        partitions: of a fetch; records that were acquired are held already.
        lost: partitions whose leader is another one, or that there are no more.
        refusals: what the broker said of acknowledgements that it refused.
        throttle: seconds that the broker wants to be left alone.
    """

    error: int = 0
    message: str = ""
    partitions: Mapping[TopicIdPartition, FetchedPartition] = {}
    lost: Collection[TopicIdPartition] = ()
    refusals: Collection[str] = ()
    throttle: float = 0.0


@dataclass(slots=True, eq=False)
class _Sent:
    request: Request
    at: float
    groups: Groups = field(default_factory=dict)
    members: frozenset[TopicIdPartition] = frozenset()


class ShareSession:
    """One member's session with one leader.

    Args:
        renews: the broker knows renewals.

    Attributes:
        epoch: of the next request.
        locks: of each partition that this leader leads, whether it is read now or not.
        known: partitions that the broker has in the session.
        max_bytes: of record batches that the next fetch may bring, about.
    """

    def __init__(
        self, group: str, member_id: str, limits: FetchLimits, *, renews: bool = True
    ) -> None:
        self._group = group
        self._member_id = member_id
        self._limits = limits
        self._renews = renews
        self.epoch = OPEN_EPOCH
        self.known: frozenset[TopicIdPartition] = frozenset()
        self.locks: dict[TopicIdPartition, Locks] = {}
        self._waiting: Queues = {}
        self._renewals: Queues = {}
        self._sent: _Sent | None = None
        self._may_be_open = False
        self.max_bytes = limits.max_bytes

    # -- what is wanted -------------------------------------------------------------------------

    def acknowledge(self, tip: TopicIdPartition, group: AckGroup | None) -> None:
        """Has the next request carry a group, if there is one."""
        if group is not None:
            self._waiting.setdefault(tip, deque()).append(group)

    @property
    def has_acks(self) -> bool:
        """Acknowledgements wait for a request."""
        return bool(self._waiting)

    @property
    def is_asking(self) -> bool:
        """A request is under way."""
        return self._sent is not None

    def wake_at(self) -> float:
        """When `poll` has a renewal; infinite where none is due at any time."""
        if not self._renews or self.is_asking:
            return math.inf
        return min((locks.renewal for locks in self.locks.values()), default=math.inf)

    # -- requests -------------------------------------------------------------------------------

    def poll(
        self, now: float, wanted: Collection[TopicIdPartition], max_records: int
    ) -> Request | None:
        """What to send now; None for nothing, or while a request is under way.

        Args:
            wanted: partitions that are to be read.
            max_records: that may come; 0: none are fetched.
        """
        if self.is_asking:
            return None
        self._look_for_renewals(now)
        if self.epoch == OPEN_EPOCH:
            if self._renewals or self._waiting or (wanted and max_records):
                return self._open(now, wanted if max_records else (), max_records)
            return None
        if self._renewals:
            return self._send_acks(now, self._renewals, has_renewals=True)
        if wanted and max_records:
            return self._fetch(now, frozenset(wanted), max_records)
        return self._send_acks(now, self._waiting) if self._waiting else None

    def _look_for_renewals(self, now: float) -> None:
        for tip, locks in self.locks.items():
            locks.expire(now)
            if self._renews and locks.renewal <= now and (group := locks.renewals(now)):
                self._renewals.setdefault(tip, deque()).append(group)
        self._renewals = {
            tip: held for tip, groups in self._renewals.items() if (held := self._held(tip, groups))
        }

    def _held(self, tip: TopicIdPartition, groups: deque[AckGroup]) -> deque[AckGroup]:
        """Cuts groups down to records that are still held; the others were acknowledged or lost while the groups waited."""
        locks = self.locks.get(tip, ())
        for group in groups:
            group.types = {offset: kind for offset, kind in group.types.items() if offset in locks}
        return deque(group for group in groups if group.types)

    def _open(self, now: float, wanted: Collection[TopicIdPartition], most: int) -> ShareFetch:
        """Opens the session; without partitions if there are acknowledgements to send, so that nothing is acquired."""
        topics: dict[TopicIdPartition, list[AckBatch]] = {tip: [] for tip in wanted}
        request = self._fetch_of(now, OPEN_EPOCH, topics, frozenset(), most)
        self._sent = _Sent(request, now, members=frozenset(wanted))
        self._may_be_open = True
        return request

    def _fetch(self, now: float, wanted: frozenset[TopicIdPartition], most: int) -> ShareFetch:
        groups = _take(self._waiting)
        topics: dict[TopicIdPartition, list[AckBatch]] = {
            tip: [] for tip in wanted - self.known if tip not in groups
        }
        topics |= _batches(groups)
        # One that is acknowledged alone would join the session by that: it is forgotten in the same request.
        forgotten = (self.known | groups.keys()) - wanted
        request = self._fetch_of(now, self.epoch, topics, forgotten, most)
        self._sent = _Sent(request, now, groups, members=wanted)
        return request

    def _wait(self, now: float) -> float:
        """Seconds that the broker may wait for records, while acknowledgements wait behind the fetch.

        Where a partition is full, the broker gives no more of it before it hears of some: they are on their way if
        others were just settled.
        """
        limits = self._limits
        for locks in self.locks.values():
            if locks.is_full and now - locks.settled_at < RECENT:
                return min(limits.busy_wait, FULL_WAIT)
        is_busy = bool(self._waiting) or any(self.locks.values())
        return limits.busy_wait if is_busy else limits.max_wait

    def _fetch_of(
        self,
        now: float,
        epoch: int,
        topics: Mapping[TopicIdPartition, list[AckBatch]],
        forgotten: frozenset[TopicIdPartition],
        most: int,
    ) -> ShareFetch:
        limits = self._limits
        return ShareFetch(
            self._group,
            self._member_id,
            epoch,
            max_wait=self._wait(now),
            min_bytes=limits.min_bytes,
            max_bytes=min(self.max_bytes, limits.max_bytes),
            max_records=max(most, 1),
            batch_size=min(limits.batch_size, max(most, 1)),
            acquire_mode=limits.acquire_mode,
            topics=topics,
            forgotten=forgotten,
        )

    def _send_acks(
        self, now: float, queues: Queues, *, has_renewals: bool = False
    ) -> ShareAcknowledge:
        groups = _take(queues)
        topics = _batches(groups)
        request = ShareAcknowledge(
            self._group, self._member_id, self.epoch, has_renewals=has_renewals, topics=topics
        )
        self._sent = _Sent(request, now, groups, members=self.known)
        return request

    # -- answers --------------------------------------------------------------------------------

    def answered(
        self, request: Request, answer: ShareFetchAnswer | ShareAcknowledgeAnswer
    ) -> Received:
        """The leader's answer to what `poll` gave."""
        sent = self._sent
        if sent is None or sent.request is not request:
            return Received()
        self._sent = None
        if answer.error:
            return self._refused(sent, answer.error, answer.message, answer.throttle)
        self.epoch = 1 if self.epoch == LAST_EPOCH else self.epoch + 1
        self.known = sent.members
        refusals: list[str] = []
        lost = self._acknowledged(sent, answer, refusals)
        if isinstance(answer, ShareAcknowledgeAnswer):
            return Received(lost=lost, refusals=refusals, throttle=answer.throttle)
        for tip, part in answer.partitions.items():
            if part.acquired and tip in self.locks:
                if tip in self._waiting:
                    self._overtake(tip, part.acquired)
                self.locks[tip].acquire(part.acquired, sent.at, answer.lock_timeout)
        return Received(
            partitions=answer.partitions, lost=lost, refusals=refusals, throttle=answer.throttle
        )

    def _overtake(self, tip: TopicIdPartition, acquired: Iterable[AcquiredRange]) -> None:
        """Drops waiting acknowledgements of earlier deliveries of these records, which are late now.

        Sent now, it would be taken as said of the new ones, which a handler is about to get.
        """
        again = {offset for each in acquired for offset in range(each.first, each.last + 1)}
        waiting = self._waiting.pop(tip, deque())
        for group in waiting:
            if over := again & group.types.keys():
                self.locks[tip].overtaken(group, over)
                if not group.types and group.ticket is not None:
                    group.ticket.answered()
        if left := deque(group for group in waiting if group.types):
            self._waiting[tip] = left

    def _acknowledged(
        self,
        sent: _Sent,
        answer: ShareFetchAnswer | ShareAcknowledgeAnswer,
        refusals: list[str],
    ) -> list[TopicIdPartition]:
        """Partitions of which nothing is held any more."""
        lost: list[TopicIdPartition] = []
        for tip, groups in sent.groups.items():
            code, text = _ack_error(answer.partitions.get(tip))
            if code in MOVED:
                lost.append(tip)
            if code:
                refusals.append(f"{text or 'no reason given'} (error {code})")
            if code in DOUBTED and (parts := _parts(groups)):
                queues = self._renewals if sent.request.has_renewals else self._waiting
                _put_first(queues, tip, parts)
            elif sent.request.has_renewals:
                self._renewed(tip, groups, code, sent.at, answer.lock_timeout)
            else:
                self._settled(tip, groups, code)
        return lost

    def _settled(self, tip: TopicIdPartition, groups: list[AckGroup], code: int) -> None:
        """Takes the answer to some groups: they count, were late, or are sent again."""
        if code and code not in DOUBTED | MOVED:  # the broker's trouble for a moment
            _put_first(self._waiting, tip, groups)
            return
        for group in groups:
            if code and tip in self.locks:
                self.locks[tip].refused(group)
            if group.ticket is not None:
                group.ticket.answered()

    def _renewed(
        self, tip: TopicIdPartition, groups: list[AckGroup], code: int, since: float, timeout: float
    ) -> None:
        if (locks := self.locks.get(tip)) is None:
            return
        offsets = list(chain.from_iterable(group.types for group in groups))
        if not code:
            locks.renewed(offsets, since, timeout)
        elif code in DOUBTED | MOVED:
            locks.lose(offsets)
        else:
            locks.renew_at(offsets, since + REST)

    def _refused(self, sent: _Sent, code: int, message: str, throttle: float) -> Received:
        self._put_back(sent)
        self.reset()
        return Received(0 if code in SESSION_ENDED else code, message, throttle=throttle)

    def failed(self, request: Request, error: Exception) -> None:
        """No answer came, so nobody knows whether the leader has done what was asked. Whoever waits is told."""
        sent = self._sent
        if sent is None or sent.request is not request:
            return
        self._sent = None
        self.reset()
        self._put_back(sent)
        waiting, self._waiting = self._waiting, {}
        for tip, groups in waiting.items():
            for group in groups:
                self._give_back(tip, group, error)

    def _give_back(self, tip: TopicIdPartition, group: AckGroup, error: Exception) -> None:
        """Tells whoever waits for a group, who sends it again; a group that nobody waits for goes into the next request."""
        if group.ticket is None:
            self.acknowledge(tip, group)
            return
        if tip in self.locks:
            self.locks[tip].hold_again(group.locks)
        group.ticket.answered(error)

    def _put_back(self, sent: _Sent) -> None:
        queues = self._renewals if sent.request.has_renewals else self._waiting
        for tip, groups in sent.groups.items():
            _put_first(queues, tip, groups)

    def reset(self) -> None:
        """The next request opens the session anew."""
        self.epoch = OPEN_EPOCH
        self.known = frozenset()

    # -- partitions that come and go ------------------------------------------------------------

    def drop(self, tip: TopicIdPartition) -> None:
        """Drops a partition that another node leads, or that this member no longer has, with its acknowledgements."""
        self.locks.pop(tip, None)
        self._renewals.pop(tip, None)
        for group in self._waiting.pop(tip, ()):
            if group.ticket is not None:
                group.ticket.late += len(group.types)
                group.ticket.answered()

    # -- the end --------------------------------------------------------------------------------

    def close(self, now: float) -> ShareAcknowledge | None:
        """Ends the session, with what waits to be said; None where there is none, or a request is under way.

        The broker releases what the member still holds of the session's partitions. What it holds of others, which were
        forgotten while they had enough, is released by name. It ends a session of any epoch.
        """
        if self.is_asking or not self._may_be_open:
            return None
        self._may_be_open = False
        groups = _take(self._waiting)
        self._release_forgotten(groups, now)
        topics = _batches(groups)
        request = ShareAcknowledge(self._group, self._member_id, CLOSE_EPOCH, topics=topics)
        self._sent = _Sent(request, now, groups)
        return request

    def _release_forgotten(self, groups: Groups, now: float) -> None:
        for tip in self.locks.keys() - self.known:
            said = groups.get(tip, [])
            # The broker takes all that is said of a partition, or nothing of it.
            if any(group.is_doubted for group in said):
                continue
            held = self.locks[tip]
            if group := held.settle(held.offsets, AckType.RELEASE, now):
                groups[tip] = [*said, group]

    def end(self, error: Exception | None) -> None:
        """Ends without another request, and tells whoever waits.

        Args:
            error: why what `close` said may not have come; None: it was answered.
        """
        sent, self._sent = self._sent, None
        waiting, self._waiting = self._waiting, {}
        for group in () if sent is None else chain.from_iterable(sent.groups.values()):
            if group.ticket is not None:
                group.ticket.answered(error)
        for group in chain.from_iterable(waiting.values()):
            if group.ticket is not None:
                group.ticket.answered(error or TransientAdapterError("the share session has ended"))


def _take(queues: Queues) -> Groups:
    """What waits, of each partition; a group that the broker has refused goes alone."""
    taken: Groups = {}
    for tip, groups in list(queues.items()):
        taken[tip] = [groups.popleft()]
        while groups and _may_join(groups[0], taken[tip]):
            taken[tip].append(groups.popleft())
        if not groups:
            del queues[tip]
    return taken


def _may_join(group: AckGroup, others: Sequence[AckGroup]) -> bool:
    if group.is_doubted or others[0].is_doubted:
        return False
    return all(group.types.keys().isdisjoint(other.types) for other in others)


def _parts(groups: Sequence[AckGroup]) -> list[AckGroup]:
    """What is to be said one by one after a refusal; none where it cannot be told what of it counts."""
    if len(groups) == 1:
        return groups[0].halves()
    for group in groups:
        group.is_doubted = True
    return list(groups)


def _put_first(queues: Queues, tip: TopicIdPartition, groups: Sequence[AckGroup]) -> None:
    queues.setdefault(tip, deque()).extendleft(reversed(groups))


def _batches(groups: Groups) -> dict[TopicIdPartition, list[AckBatch]]:
    """As a request carries them."""
    return {
        tip: ack_batches(parts[0].types if len(parts) == 1 else _types(parts))
        for tip, parts in groups.items()
    }


def _types(groups: Sequence[AckGroup]) -> dict[int, AckType]:
    return {offset: kind for group in groups for offset, kind in group.types.items()}


def _ack_error(part: FetchedPartition | AcknowledgedPartition | None) -> tuple[int, str]:
    """What an answer says of a partition's acknowledgements; one that it does not name went well."""
    if part is None:
        return 0, ""
    if isinstance(part, FetchedPartition):
        return part.ack_error, part.ack_message
    return part.error, part.message
