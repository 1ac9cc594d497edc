"""The result of a fetch, and the tracker's answer to it."""

from __future__ import annotations

import enum
import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from consumer_sdk.errors import UnreadableRecordError
from consumer_sdk.records.messages import UNBOUND, Holder, Message, Redelivery
from consumer_sdk.records.partitions import Assignment, Position

__all__ = [
    "FIRST_UNREADABLE",
    "LAST_UNREADABLE",
    "Arrival",
    "Due",
    "Run",
    "Tracked",
    "TrackedLists",
    "Verdict",
    "VerdictKind",
]

FIRST_UNREADABLE = "unreadable.first"
LAST_UNREADABLE = "unreadable.last"
"""The headers with the positions, in a dead letter whose value are bytes that cannot be read."""


@dataclass(slots=True)
class Run:
    """Consecutive records of one partition, as fetched.

    Attributes:
        assignment: the grant that they belong to.
        messages: in order; may be empty.
        next_position: where the next fetch starts, when the broker says so. It may move
            without any record (transaction markers, filtered records).
        ended: the partition has no further records, ever.
        fault: an error of this partition alone, which the adapter has paused. Records before the
            fault come in a run of their own, so a run with a fault has no messages, except an
            unreadable one (`unreadable`).
        size: bytes of the messages.
        ascends: the adapter knows that positions ascend; otherwise trackers check that.
        last: the last position of several records that cannot be read and come as one message.
        deliveries: if the broker counts deliveries: the delivery number of each record that was
            delivered before, here or elsewhere.
        known_positions, known_natives: of the messages, if the adapter has them as lists already.
    """

    assignment: Assignment
    messages: list[Message] = field(default_factory=list)
    next_position: Position | None = None
    ended: bool = False
    fault: Exception | None = None
    size: int = 0
    ascends: bool = False
    last: Position | None = None
    deliveries: Mapping[Position, int] | None = None
    known_positions: list[Position] | None = None
    known_natives: list[Any] | None = None

    @property
    def positions(self) -> list[Position]:
        """Of the messages."""
        known = self.known_positions
        return [message.position for message in self.messages] if known is None else known

    @property
    def natives(self) -> list[Any]:
        """The handle of each message with which the adapter settles it."""
        known = self.known_natives
        return [message.native for message in self.messages] if known is None else known

    @classmethod
    def unreadable(
        cls,
        message: Message,
        next_position: Position | None,
        fault: UnreadableRecordError,
        *,
        first: str,
        last: str,
        last_position: Position | None = None,
    ) -> Run:
        """Makes a run of one unreadable message, which no handler gets.

        Args:
            message: its value is the raw bytes; its headers become the two positions.
            next_position: behind it, where the adapter goes on when it is resumed.
            first: the text form of the first position that cannot be read, the message's own.
            last: that of the last one.
            last_position: the last one itself, where it is another than the first.
        """
        message.headers = ((FIRST_UNREADABLE, first.encode()), (LAST_UNREADABLE, last.encode()))
        return cls(
            message.assignment,
            [message],
            next_position,
            fault=fault,
            size=message.size,
            last=last_position,
        )


class VerdictKind(enum.Enum):
    """What to do with a failed delivery."""

    RETRY = "retry"
    DEAD_LETTER = "dead_letter"
    IGNORED = "ignored"


@dataclass(frozen=True, slots=True)
class Verdict:
    """A tracker's decision on a nack: retry at ``due`` (monotonic seconds), or not at all."""

    kind: VerdictKind
    due: float = 0.0


class Arrival(enum.Enum):
    """What to do with a record that was tracked.

    DELIVER: hand it out now. HELD: it failed before a restart, and comes through
    `AckTracker.due`. EXHAUSTED: it is at its retry limit; write its dead letter, then call
    `AckTracker.dead_lettered`.
    """

    DELIVER = "deliver"
    HELD = "held"
    EXHAUSTED = "exhausted"


@dataclass(slots=True)
class Tracked:
    """What tracking a run found; everything but the indices lists exceptions only.

    Indices are minted from ``first`` in order, one for each message that is neither ``dropped``,
    ``known`` nor ``late``; `bind` is that mapping. `arrivals` says what to do with each message.

    Attributes:
        first: the first index minted.
        count: how many were minted.
        dropped: offsets *into the run* of messages that were seen or settled before; they have no
            index and are not delivered.
        settled: indices settled before a restart; not delivered.
        known: offsets into the run of messages that are in flight already; they have no index of
            their own and are not delivered.
        late: offset into the run → index, of messages below what was seen before that were never
            seen themselves; they are delivered.
        held: indices of restored retries that are not due yet; they come through ``due``.
        tries: index → attempt number, where that is not 1.
        exhausted: indices at their retry limit: straight to the dead letters.
    """

    first: int
    count: int
    dropped: Sequence[int] = ()
    settled: Sequence[int] = ()
    known: Sequence[int] = ()
    late: Mapping[int, int] = field(default_factory=dict)
    held: Sequence[int] = ()
    tries: Mapping[int, int] = field(default_factory=dict)
    exhausted: Sequence[int] = ()

    def bind(self, messages: list[Message], holder: Holder = UNBOUND) -> list[Message]:
        """Tells messages their index, and whose they are.

        Args:
            messages: the run's, all of them.
            holder: what a message's ``ack``, ``nack`` and so on call; by default they raise.

        Returns:
            those that have an index, in order; the first one's is ``first``, if none is ``late``.
        """
        if self.late:
            return self._bind_late(messages, holder)
        if self.dropped or self.known:
            absent = {*self.dropped, *self.known}
            messages = [message for at, message in enumerate(messages) if at not in absent]
        for index, message in enumerate(messages, self.first):
            message.holder = holder
            message.index = index
        return messages

    def _bind_late(self, messages: list[Message], holder: Holder) -> list[Message]:
        absent, line = {*self.dropped, *self.known}, itertools.count(self.first)
        bound = []
        for offset, message in enumerate(messages):
            if offset not in absent:
                message.holder = holder
                message.index = self.late[offset] if offset in self.late else next(line)
                bound.append(message)
        return bound

    def arrivals(self, bound: Iterable[Message]) -> Iterator[tuple[Message, Arrival]]:
        """What to do with each message that `bind` has returned; nothing with those left out.

        Yields:
            the message, as the delivery that it is if a checkpoint tells of failed ones, and
            what to do with it.
        """
        settled, held, exhausted = set(self.settled), set(self.held), set(self.exhausted)
        for message in bound:
            index = message.index
            if index in exhausted:
                tried = self.tries.get(index)
                yield message if tried is None else Redelivery.of(message, tried), Arrival.EXHAUSTED
            elif index in held:
                yield message, Arrival.HELD
            elif index in self.tries:
                yield Redelivery.of(message, self.tries[index]), Arrival.DELIVER
            elif index not in settled:
                yield message, Arrival.DELIVER

    @property
    def plain(self) -> bool:
        """Every message is new and to be delivered for the first time."""
        return not (
            self.dropped
            or self.settled
            or self.known
            or self.late
            or self.held
            or self.tries
            or self.exhausted
        )


@dataclass(slots=True)
class TrackedLists:
    """The lists of a `Tracked`, while they grow."""

    dropped: list[int] = field(default_factory=list)
    settled: list[int] = field(default_factory=list)
    known: list[int] = field(default_factory=list)
    held: list[int] = field(default_factory=list)
    late: dict[int, int] = field(default_factory=dict)
    tries: dict[int, int] = field(default_factory=dict)
    exhausted: list[int] = field(default_factory=list)

    def tracked(self, first: int, end: int) -> Tracked:
        """The result, for the indices from ``first`` up to ``end``, and of what came late."""
        return Tracked(
            first,
            end - first + len(self.late),
            dropped=self.dropped,
            settled=self.settled,
            known=self.known,
            late=self.late,
            held=self.held,
            tries=self.tries,
            exhausted=self.exhausted,
        )


@dataclass(frozen=True, slots=True)
class Due:
    """What is due at a time: redeliveries, and expired deliveries.

    Attributes:
        ready: (index, attempt, item) of retries that are due; item is what ``nack`` was given.
        expired: (index, verdict, item) of deliveries whose ack timeout passed.
    """

    ready: Sequence[tuple[int, int, Any]] = ()
    expired: Sequence[tuple[int, Verdict, Any]] = ()
