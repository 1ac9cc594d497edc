"""A partition held by one consumer, as it was granted under one assignment.

A member of a group reads it by position (`PositionHolding`). To a subscriber the broker sends its
records, and sends again what is not acked (`SubscribedHolding`).
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from consumer_sdk.adapters.assignment_book import BaseGrant
from consumer_sdk.checkpoints.positions import decode_offset
from consumer_sdk.errors import (
    PositionOutOfRangeError,
    TransientAdapterError,
    UnreadableRecordError,
)
from consumer_sdk.records import (
    AckFlush,
    AtPosition,
    AtTime,
    Message,
    Outcome,
    OutcomeKind,
    Position,
    Run,
    Start,
    StartPoint,
)
from consumer_sdk.testing.memory.log import PartitionLog, Slice
from consumer_sdk.testing.memory.subscription import Connection, Cursor, Sent

__all__ = [
    "ENTRIES",
    "NUMBERS",
    "Holding",
    "PositionHolding",
    "Positions",
    "SubscribedHolding",
    "resolve",
]


class Positions(Protocol):
    """How positions look from outside: numbers to a group, an entry and an index to a subscriber."""

    def at(self, log: PartitionLog, number: int) -> Position:
        """The position of the record that is stored under a number."""
        ...

    def encode(self, position: Position) -> str:
        """Its text form."""
        ...

    def decode(self, text: str) -> Position:
        """Reads `encode` back.

        Raises:
            CheckpointFormatError: ``text`` is no position.
        """
        ...


class Numbers:
    """Whole numbers, as a log counts them."""

    def at(self, log: PartitionLog, number: int) -> int:  # noqa: ARG002 - they are the same
        return number

    def encode(self, position: int) -> str:
        return str(position)

    def decode(self, text: str) -> int:
        return decode_offset(text)


class Entries:
    """``(entry, index)``: an entry has the number of its first record."""

    def at(self, log: PartitionLog, number: int) -> tuple[int, int]:
        return log.place(number)

    def encode(self, position: tuple[int, int]) -> str:
        return f"{position[0]}:{position[1]}"

    def decode(self, text: str) -> tuple[int, int]:
        entry, _, index = text.partition(":")
        return decode_offset(entry), decode_offset(index)


NUMBERS = Numbers()
ENTRIES = Entries()


def resolve(log: PartitionLog, at: Start) -> int | None:
    """The position that a start stands for now; None if no record is that new."""
    match at:
        case StartPoint.EARLIEST:
            return log.start
        case StartPoint.LATEST:
            return log.end
        case AtTime(time):
            return log.at_time(time * 1000)
        case AtPosition(position):
            return int(position)
    return None


@dataclass(slots=True, eq=False)
class Holding(BaseGrant, ABC):
    """One grant; a fault pauses it too.

    Attributes:
        on_news: told of the holding when there may be something to read.
    """

    log: PartitionLog
    identity: str
    on_news: Callable[[Holding], None]
    positions: Positions

    @property
    def has_more(self) -> bool:
        """Another read may find something, without any news."""
        return True

    def news(self) -> None:
        """There may be something to read."""
        self.on_news(self)

    @abstractmethod
    def begin(self) -> None:
        """Reads from its start on."""

    @abstractmethod
    def read(self, max_records: int, max_bytes: int) -> Run | None:
        """The next run, or None when there is nothing new."""

    @abstractmethod
    def lag(self) -> int | None:
        """How much there is to read."""

    def fault(self, error: Exception) -> Run:
        """Pauses the partition and says why."""
        self.is_paused = True
        return Run(self.assignment, fault=error)

    def unreadable(self, message: Message, behind: int | None) -> Run:
        """Pauses the partition at a record that cannot be read."""
        self.is_paused = True
        at = self.positions.encode(message.position)
        error = UnreadableRecordError(
            f"{self.assignment.partition}: the record at {at} cannot be read"
        )
        return Run.unreadable(message, behind, error, first=at, last=at)

    def resume(self) -> None:
        """Undoes a pause; after `unreadable` it goes on behind that."""
        self.is_paused = False


@dataclass(slots=True, eq=False)
class PositionHolding(Holding):
    """Reads on from a position.

    Attributes:
        committed: where the group was when it was granted; None for nowhere.
        position: the next one to read; None until the owner has said where to start, and for
            one that has nothing to read.
        behind: the position behind one that cannot be read and was handed out as such.
    """

    committed: int | None = None
    position: int | None = None
    behind: int | None = None

    @property
    def has_more(self) -> bool:
        return self.position != self.log.end

    def begin(self) -> None:
        if self.start is StartPoint.BROKER:
            self.position = self.log.start if self.committed is None else self.committed
        elif self.start is not None and self.start is not StartPoint.ENDED:
            position = resolve(self.log, self.start)
            self.position = self.log.end if position is None else position
        self.log.listeners.append(self.news)
        self.news()

    def close(self) -> None:
        Holding.close(self)
        if self.news in self.log.listeners:
            self.log.listeners.remove(self.news)

    def lag(self) -> int | None:
        return None if self.position is None else max(0, self.log.end - self.position)

    def read(self, max_records: int, max_bytes: int) -> Run | None:
        position, log = self.position, self.log
        if position is None:
            return None
        if not log.start <= position <= log.end:
            return self.fault(
                PositionOutOfRangeError(
                    f"{self.assignment.partition}: position {position} is not stored "
                    f"(any more, or yet): there are {log.start} to {log.end}"
                )
            )
        found = log.read(position, max_records, max_bytes)
        if found.next_position == position:
            return None
        if found.positions and found.positions[0] in log.unreadable:
            self.behind = found.next_position
            return self.unreadable(self._messages(found)[0], self.behind)
        self.position = found.next_position
        messages = self._messages(found)
        return Run(self.assignment, messages, found.next_position, size=found.size, ascends=True)

    def resume(self) -> None:
        if self.behind is not None:
            self.position, self.behind = self.behind, None
        Holding.resume(self)

    def _messages(self, found: Slice) -> list[Message]:
        assignment = self.assignment
        messages = []
        # Attribute stores on a bare object cost half of Message.make's call.
        for position, (key, value, headers, timestamp) in zip(
            found.positions, found.records, strict=True
        ):
            message = Message()
            message.assignment = assignment
            message.position = position
            message.key = key
            message.value = value
            message.headers = headers
            message.timestamp = timestamp
            messages.append(message)
        return messages


RECONNECT = 0.1
"""Seconds until a connection that was cut is there again."""


class NamedMessage(Message):
    """A message with the handle that acks it at the broker."""

    __slots__ = ("native",)


@dataclass(slots=True, eq=False, kw_only=True)
class SubscribedHolding(Holding):
    """Reads what the broker sends to its connection; positions are ``(entry, index)``."""

    cursor: Cursor
    prefetch: int
    connection: Connection | None = None
    _timer: asyncio.TimerHandle | None = field(default=None, repr=False)

    # -- the connection -----------------------------------------------------------------

    def begin(self) -> None:
        number = self._number(self.start)
        if number is not None:
            self.cursor.seek(number)
        self._connect()

    def _number(self, start: Start | None) -> int | None:
        if isinstance(start, AtPosition):
            return int(sum(start.position))
        return None if start is None else resolve(self.log, start)

    def _connect(self) -> None:
        if not self.is_closed and self.start is not StartPoint.ENDED:
            self.connection = Connection(self.news, self.prefetch)
            self.cursor.connect(self.connection)

    def cut(self) -> None:
        """The connection breaks: all that is not acked goes out again. It is soon back."""
        if self.connection is not None:
            self._disconnect()
            self._timer = asyncio.get_running_loop().call_later(RECONNECT, self._connect)

    def _disconnect(self) -> None:
        if self.connection is not None:
            self.cursor.disconnect(self.connection)
            self.connection = None

    def close(self) -> None:
        Holding.close(self)
        if self._timer is not None:
            self._timer.cancel()
        self._disconnect()

    # -- records ------------------------------------------------------------------------

    def read(self, max_records: int, max_bytes: int) -> Run | None:
        if self.connection is None:
            return None
        count = max_records
        if self.log.unreadable:
            count = self.log.readable(each.position for each in self.connection.waiting)
        sent = self.cursor.take(self.connection, min(count or 1, max_records), max_bytes)
        if not sent:
            return None
        if count == 0:
            return self.unreadable(self._message(sent[0]), None)
        size = sum(each.record.size for each in sent)
        return Run(self.assignment, [self._message(each) for each in sent], size=size)

    def _message(self, sent: Sent) -> Message:
        message = NamedMessage()
        message.assignment = self.assignment
        message.position = self.log.place(sent.position)
        message.key, message.value, message.headers, message.timestamp = sent.record
        message.native = sent.handle
        return message

    def lag(self) -> int | None:
        return None if self.connection is None else self.cursor.lag(self.connection)

    # -- acks ---------------------------------------------------------------------------

    def commit(self, flush: AckFlush, *, is_lost: bool) -> Outcome:
        """Acks each settled record; a subscription that nobody has read yet takes a position.

        Args:
            is_lost: the acks are lost with the connection, and nobody is told.
        """
        if self.cursor.is_new and flush.checkpoint.resume is not None:
            self.cursor.seek(int(sum(flush.checkpoint.resume)))
        elif flush.settled and self.connection is None:
            where = self.assignment.partition
            return Outcome.retry(TransientAdapterError(f"{where} is disconnected at the moment"))
        elif is_lost:
            self.cut()
        else:
            self.cursor.ack([handle for _, handle in flush.settled])
        return Outcome(OutcomeKind.SENT)
