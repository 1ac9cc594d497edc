"""The records of one partition that this member has acquired, until it acknowledges them or their locks end. Pure.

Rules:

- A record is *held* from the answer that acquired it up to its acknowledgement, its lock's end, or a loss. Its lock
  began at the broker before that answer came, so it is counted from the time when the request was sent.
- An acknowledgement of a record that is not held is counted and not sent: the broker may have given the record to
  another member, and would refuse all acknowledgements of that request.
- While an acknowledgement is under way, the record is not held, and no other acknowledgement of it is sent. If no
  answer comes, it is held again, up to the same end.
- A renewed lock counts from the time when the renewal was sent. Renewals are due when half of a lock's time is over.

Moments and durations are in seconds of any clock that never goes back.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from consumer_sdk.adapters.kafka.share.messages import AckBatch, AckType, AcquiredRange

__all__ = ["AckGroup", "Lock", "Locks", "Ticket", "ack_batches"]

RENEWED_AT = 0.5
"""The share of a lock's time after which it is renewed."""
FULL = 0.9
"""The share of a partition's limit at which no more is asked for."""
SPLITS = 6
"""How often a group that the broker refuses is halved, to find what of it counts."""


@dataclass(slots=True, eq=False)
class Lock:
    """What is common to records that were acquired together.

    Attributes:
        until: when it ends, if it is not renewed.
        renewal: when it is to be renewed.
        delivery_count: 1 for the first delivery.
        acquisition: which one of the partition's it is.
    """

    until: float
    renewal: float
    delivery_count: int
    acquisition: int = 0


class Ticket:
    """Waits until all groups of a flush were answered.

    Args:
        done: called once, with the error if there was one.

    Attributes:
        late: records of the flush that were not held any more: they come again.
    """

    def __init__(self, done: Callable[[Exception | None], None]) -> None:
        self._done = done
        self.late = 0
        self._left = 0
        self._error: Exception | None = None

    def add(self) -> None:
        """Adds a group to wait for."""
        self._left += 1

    def answered(self, error: Exception | None = None) -> None:
        """Notes that a group was answered."""
        self._left -= 1
        self._error = self._error or error
        if self._left == 0:
            self._done(self._error)


@dataclass(slots=True, eq=False)
class AckGroup:
    """Acknowledgements of one partition that go together: all of them count, or none.

    Attributes:
        types: by offset.
        locks: of the offsets that were held; they are held again if nobody answers.
        ticket: who waits for the answer.
        splits: how often it may still be halved.
        is_doubted: the broker has refused it together with others: it goes alone.
    """

    types: dict[int, AckType]
    locks: dict[int, Lock] = field(default_factory=dict)
    ticket: Ticket | None = None
    splits: int = SPLITS
    is_doubted: bool = False

    def halves(self) -> list[AckGroup]:
        """Two groups of the same acknowledgements; none where it cannot be told which of them count."""
        if len(self.types) == 1 or not self.splits:
            return []
        offsets = sorted(self.types)
        middle = len(offsets) // 2
        if self.ticket is not None:
            self.ticket.add()
        return [self._part(offsets[:middle]), self._part(offsets[middle:])]

    def _part(self, offsets: Sequence[int]) -> AckGroup:
        types = {offset: self.types[offset] for offset in offsets}
        locks = {offset: self.locks[offset] for offset in offsets if offset in self.locks}
        return AckGroup(types, locks, self.ticket, self.splits - 1, is_doubted=True)


def ack_batches(types: Mapping[int, AckType]) -> list[AckBatch]:
    """Acknowledgements as ranges without a gap: one type for a whole range where that is enough, else each one's."""
    offsets = sorted(types)
    if not offsets:
        return []
    if offsets[-1] - offsets[0] + 1 == len(offsets):
        return [_batch(offsets, types)]
    starts = [at for at, offset in enumerate(offsets) if not at or offset != offsets[at - 1] + 1]
    ends = [*starts[1:], len(offsets)]
    return [_batch(offsets[start:end], types) for start, end in zip(starts, ends, strict=True)]


def _batch(offsets: Sequence[int], types: Mapping[int, AckType]) -> AckBatch:
    kinds = tuple(map(types.__getitem__, offsets))
    is_one = kinds.count(kinds[0]) == len(kinds)
    return AckBatch(offsets[0], offsets[-1], tuple(map(int, kinds[:1] if is_one else kinds)))


class Locks:
    """What is held of one partition.

    Args:
        limit: records that the broker lets a group acquire of a partition.

    Attributes:
        late: acknowledgements of records that were not held any more.
        acquisitions: how many answers have acquired records.
        losses: how often something that was held was lost, or acquired again.
        settled_at: when something was acknowledged last.
        ended: what was held, and is so no more although nothing was said of it; whoever looks empties it.
    """

    def __init__(self, limit: int = 2000) -> None:
        self._limit = limit
        self.acquisitions = self.losses = 0
        self.settled_at = -math.inf
        self.ended: list[int] = []
        self._held: dict[int, Lock] = {}
        self._renewal = math.inf
        self._end = math.inf
        self.late = 0

    def __len__(self) -> int:
        return len(self._held)

    @property
    def is_full(self) -> bool:
        """The broker gives no more, or little, before something is acknowledged."""
        return len(self._held) >= self._limit * FULL

    @property
    def has_settled(self) -> bool:
        """Something was acknowledged."""
        return self.settled_at > -math.inf

    def __contains__(self, offset: object) -> bool:
        return offset in self._held

    @property
    def offsets(self) -> list[int]:
        """All that is held, ascending."""
        return sorted(self._held)

    def is_held(self, offset: int, acquisition: int) -> bool:
        """Whether it is held, and by that acquisition: a later one has brought the record again."""
        lock = self._held.get(offset)
        return lock is not None and lock.acquisition == acquisition

    # -- acquiring ------------------------------------------------------------------------------

    def acquire(self, ranges: Iterable[AcquiredRange], since: float, timeout: float) -> None:
        """Holds these records from now on; an older lock of the same offset was that of another delivery.

        Args:
            since: when the request was sent.
            timeout: of their locks.
        """
        self.acquisitions += 1
        for first, last, count in ranges:
            until, renewal = since + timeout, since + timeout * RENEWED_AT
            lock = Lock(until, renewal, count, self.acquisitions)
            expected = len(self._held) + last + 1 - first
            self._held.update(dict.fromkeys(range(first, last + 1), lock))
            self.losses += len(self._held) < expected
            self._renewal = min(self._renewal, lock.renewal)
            self._end = min(self._end, lock.until)

    def hold_again(self, locks: Mapping[int, Lock]) -> None:
        """Holds records again whose acknowledgement got no answer, unless they were delivered anew meanwhile."""
        for offset, lock in locks.items():
            self._held.setdefault(offset, lock)
            self._renewal = min(self._renewal, lock.renewal)
            self._end = min(self._end, lock.until)

    # -- acknowledging --------------------------------------------------------------------------

    def settle(
        self,
        offsets: Iterable[int],
        kind: AckType,
        now: float,
        ticket: Ticket | None = None,
        others: Mapping[int, AckType] | None = None,
    ) -> AckGroup | None:
        """Makes the acknowledgement of those offsets that are held; None if none is.

        Args:
            others: types of some of the offsets that have another one.
        """
        held, types, locks = self._held, dict[int, AckType](), dict[int, Lock]()
        late = 0
        for offset in offsets:
            lock = held.pop(offset, None)
            if lock is None or lock.until <= now:
                late += 1
            else:
                locks[offset] = lock
                types[offset] = kind
        self.late += late
        if ticket is not None:
            ticket.late += late
        if others:
            types |= {offset: each for offset, each in others.items() if offset in types}
        if not types:
            return None
        self.settled_at = max(self.settled_at, now)
        if ticket is not None:
            ticket.add()
        return AckGroup(types, locks, ticket)

    def refused(self, group: AckGroup) -> None:
        """Counts acknowledgements that the broker has refused because their locks had ended."""
        self.late += len(group.types)
        if group.ticket is not None:
            group.ticket.late += len(group.types)

    def overtaken(self, group: AckGroup, offsets: Collection[int]) -> None:
        """Counts acknowledgements that were not sent because their records were delivered anew."""
        self.late += len(offsets)
        if group.ticket is not None:
            group.ticket.late += len(offsets)
        for offset in offsets:
            group.types.pop(offset)
            group.locks.pop(offset, None)

    # -- time -----------------------------------------------------------------------------------

    @property
    def renewal(self) -> float:
        """When the next renewal is due; infinite while nothing is held."""
        return self._renewal if self._held else math.inf

    def renewals(self, now: float) -> AckGroup | None:
        """What is to be renewed now; it is not due again before it was answered, or `renew_at` says so."""
        due = {o: lock for o, lock in self._held.items() if lock.renewal <= now < lock.until}
        for lock in due.values():
            lock.renewal = math.inf
        self._look()
        return AckGroup(dict.fromkeys(due, AckType.RENEW)) if due else None

    def renewed(self, offsets: Iterable[int], since: float, timeout: float) -> None:
        """Begins the locks anew, but for records that were acknowledged meanwhile."""
        until, renewal = since + timeout, since + timeout * RENEWED_AT
        locks: dict[int, Lock] = {}  # by the identity of the old one
        for offset in offsets:
            old = self._held.get(offset)
            if old is not None:
                lock = locks.get(id(old)) or Lock(
                    until, renewal, old.delivery_count, old.acquisition
                )
                self._held[offset] = locks[id(old)] = lock
        self._look()

    def renew_at(self, offsets: Iterable[int], moment: float) -> None:
        """Sets when a renewal that failed is due again."""
        for offset in offsets:
            lock = self._held.get(offset)
            if lock is not None:
                lock.renewal = moment
        self._look()

    def expire(self, now: float) -> list[int]:
        """Drops records whose locks have ended, and returns them. To be called before records are handed out."""
        if now < self._end:
            return []
        if ended := [offset for offset, lock in self._held.items() if lock.until <= now]:
            self.lose(ended)
        else:
            self._look()
        return ended

    def lose(self, offsets: Iterable[int]) -> None:
        """Drops some records."""
        self.losses += 1
        self.ended += [o for o in list(offsets) if self._held.pop(o, None) is not None]
        self._look()

    def _look(self) -> None:
        self._renewal = min((lock.renewal for lock in self._held.values()), default=math.inf)
        self._end = min((lock.until for lock in self._held.values()), default=math.inf)

    # -- ending ---------------------------------------------------------------------------------

    def clear(self) -> dict[int, Lock]:
        """Drops all records, and returns them."""
        held, self._held, self._renewal = self._held, {}, math.inf
        self.ended += held
        return held

    def counts(self) -> Iterator[int]:
        """Delivery counts of what is held."""
        return (lock.delivery_count for lock in self._held.values())
