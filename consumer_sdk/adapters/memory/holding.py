"""A partition held by one consumer, and the one that a consumer group reads by position."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass

from consumer_sdk.adapters.memory.log import PartitionLog, Slice
from consumer_sdk.errors import PositionOutOfRangeError
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
        is_gated: the owner has not answered yet, or the partition is being given up.
        is_paused: by the runtime, or after a fault.
    """

    assignment: Assignment
    log: PartitionLog
    identity: str
    on_news: Callable[[], None]
    is_gated: bool = True
    is_paused: bool = False

    @property
    def is_readable(self) -> bool:
        """A fetch may take records from it."""
        return not self.is_gated and not self.is_paused

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


@dataclass(slots=True, eq=False)
class PositionHolding(Holding):
    """Reads on from a position.

    Attributes:
        committed: where the group was when it was granted; None for nowhere.
        position: the next one to read; None until the owner has said where to start, and for
            one that has nothing to read.
    """

    committed: int | None = None
    position: int | None = None

    @property
    def is_readable(self) -> bool:
        return not self.is_gated and not self.is_paused and self.position is not None

    def begin(self, start: Start) -> None:
        if start is StartPoint.BROKER:
            self.position = self.log.start if self.committed is None else self.committed
        elif start is not StartPoint.ENDED:
            position = resolve(self.log, start)
            self.position = self.log.end if position is None else position
        self.log.listeners.append(self.on_news)

    def end(self) -> None:
        if self.on_news in self.log.listeners:
            self.log.listeners.remove(self.on_news)

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
        self.position = found.next_position
        return Run(self.assignment, self._messages(found), found.next_position, size=found.size)

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
