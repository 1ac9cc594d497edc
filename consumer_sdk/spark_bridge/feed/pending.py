"""Records that wait until their group is written. It has all rules about groups, and does no I/O."""

from __future__ import annotations

import asyncio
import copy
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from consumer_sdk.errors import ConsumerSdkError
from consumer_sdk.records import Message
from consumer_sdk.records.messages import total_bytes

__all__ = ["Entry", "Pending", "size_of"]


@dataclass(slots=True, eq=False)
class Entry:
    """The records of one call, and its answer.

    Attributes:
        messages: the records.
        size: bytes of their keys and values.
        since: loop time at which they came.
        answer: done when they are durable, or with the error; cancelled by its caller.
        call: the answers of all parts of the call, in order.
    """

    messages: Sequence[Message]
    size: int
    since: float
    answer: asyncio.Future[None]
    call: Sequence[asyncio.Future[None]] = field(default=(), repr=False)

    def settle(self, fault: Exception | None) -> None:
        """Answers the caller, unless it was cancelled.

        When a part of a call was not stored, the parts behind it are refused too, and `Pending.take`
        leaves them out. Otherwise:

        1. the first part of a batch fails, and the second, with later records of a partition, is stored;
        2. the caller puts the whole batch again, and the first part is stored now;
        3. Spark reads the partition's later records before its earlier ones.
        """
        if self.answer.done():
            return
        if fault is None:
            self.answer.set_result(None)
            return
        self.answer.set_exception(_own_copy(fault))
        if not getattr(fault, "records", ()):
            for later in self.call:
                if not later.done():
                    later.set_exception(_own_copy(fault))


class Pending:
    """Entries in order of arrival, taken in groups of limited size.

    Args:
        max_rows: records that fill a group.
        max_bytes: bytes of keys and values that fill a group.
    """

    __slots__ = ("_bytes", "_entries", "_max_bytes", "_max_rows", "rows")

    def __init__(self, max_rows: int, max_bytes: int) -> None:
        self._max_rows = max_rows
        self._max_bytes = max_bytes
        self._entries: deque[Entry] = deque()
        self._bytes = 0
        self.rows = 0

    @property
    def is_full(self) -> bool:
        """A group is complete."""
        return self.rows >= self._max_rows or self._bytes >= self._max_bytes

    @property
    def oldest(self) -> float | None:
        """When the oldest entry came, or None without one."""
        return self._entries[0].since if self._entries else None

    def add(self, entry: Entry) -> None:
        """Appends an entry."""
        self._entries.append(entry)
        self._count(entry, 1)

    def take(self) -> list[Entry]:
        """Removes the next group and returns it, without the cancelled entries."""
        group: list[Entry] = []
        rows = size = 0
        while self._entries and rows < self._max_rows and size < self._max_bytes:
            entry = self._entries.popleft()
            self._count(entry, -1)
            if not entry.answer.done():
                group.append(entry)
                rows += len(entry.messages)
                size += entry.size
        return group

    def drop_cancelled(self) -> None:
        """Forgets entries whose callers were cancelled: with a full feed nobody takes them for long."""
        for _ in range(len(self._entries)):
            entry = self._entries.popleft()
            if entry.answer.done():
                self._count(entry, -1)
            else:
                self._entries.append(entry)

    def parts(self, messages: Sequence[Message]) -> Iterator[tuple[Sequence[Message], int]]:
        """``messages`` in parts of at most a group's size, with the bytes of each."""
        if len(messages) <= self._max_rows and (total := _total(messages)) <= self._max_bytes:
            yield from [(messages, total)] if messages else []
            return
        begin = size = 0
        for at, message in enumerate(messages):
            if at - begin == self._max_rows or size >= self._max_bytes:
                yield messages[begin:at], size
                begin, size = at, 0
            size += size_of(message)
        if begin < len(messages):
            yield messages[begin:], size

    def _count(self, entry: Entry, sign: int) -> None:
        self.rows += sign * len(entry.messages)
        self._bytes += sign * entry.size

    def __bool__(self) -> bool:
        return bool(self._entries)


def size_of(message: Message) -> int:
    """Bytes of key and value; 0 where one is no bytes, which is for the feed's thread to say."""
    try:
        return message.size
    except TypeError:
        return 0


def _total(messages: Sequence[Message]) -> int:
    try:
        return total_bytes(messages)
    except TypeError:
        return sum(map(size_of, messages))


def _own_copy(error: Exception) -> Exception:
    """An exception for one caller: several callers raise it at the same time, and each may change its own."""
    if not isinstance(error, ConsumerSdkError):
        return error
    own = copy.copy(error)
    own.__cause__ = error.__cause__
    return own
