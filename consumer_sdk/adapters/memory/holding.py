"""A partition held by one consumer, and the one that a consumer group reads by position."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass

from consumer_sdk.adapters.memory.log import PartitionLog, Slice
from consumer_sdk.adapters.memory.positions import Positions
from consumer_sdk.errors import PositionOutOfRangeError, UnreadableRecordError
from consumer_sdk.records import Assignment, AtPosition, AtTime, Message, Run, Start, StartPoint

__all__ = ["Holding", "PositionHolding", "resolve"]


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
class Holding(ABC):
    """One grant.

    Attributes:
        on_news: told of the holding when there may be something to read.
        is_gated: the owner has not answered yet, or the partition is being given up, or over.
        is_paused: by the runtime, or after a fault.
    """

    assignment: Assignment
    log: PartitionLog
    identity: str
    on_news: Callable[[Holding], None]
    positions: Positions
    is_gated: bool = True
    is_paused: bool = False

    @property
    def is_readable(self) -> bool:
        """A fetch may take records from it."""
        return not self.is_gated and not self.is_paused

    @property
    def has_more(self) -> bool:
        """Another read may find something, without any news."""
        return True

    def news(self) -> None:
        """There may be something to read."""
        self.on_news(self)

    @abstractmethod
    def begin(self, start: Start) -> None:
        """The owner has said where to start."""

    @abstractmethod
    def read(self, max_records: int, max_bytes: int) -> Run | None:
        """The next run, or None when there is nothing new."""

    @abstractmethod
    def lag(self) -> int | None:
        """How much there is to read."""

    @abstractmethod
    def end(self) -> None:
        """It is given up, or its process was killed; idempotent."""

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
    def is_readable(self) -> bool:
        return not self.is_gated and not self.is_paused and self.position is not None

    @property
    def has_more(self) -> bool:
        return self.position != self.log.end

    def begin(self, start: Start) -> None:
        if start is StartPoint.BROKER:
            self.position = self.log.start if self.committed is None else self.committed
        elif start is not StartPoint.ENDED:
            position = resolve(self.log, start)
            self.position = self.log.end if position is None else position
        self.log.listeners.append(self.news)
        self.news()

    def end(self) -> None:
        self.is_gated = True
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
