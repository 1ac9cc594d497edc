"""What was read of a shard and not fetched yet: made into messages as they are asked for."""

from __future__ import annotations

from itertools import chain

from consumer_sdk.adapters.kinesis.aggregation import MAGIC, user_records
from consumer_sdk.adapters.kinesis.service import Page
from consumer_sdk.adapters.kinesis.starts import after
from consumer_sdk.records import Assignment, Message

__all__ = ["Unread"]


class Unread:
    """The unread part of one page.

    Args:
        page: has at least one record.
        since: user records below this position are left out; None for none.
    """

    __slots__ = ("_at", "_expanded", "_has_aggregates", "_page", "_since")

    def __init__(self, page: Page, since: tuple[int, int] | None = None) -> None:
        self._page = page
        self._since = since
        self._at = 0
        self._has_aggregates = any(data.startswith(MAGIC) for data in page.data)
        # User records of an aggregate that did not fit into the last run, last one first.
        self._expanded: list[tuple[tuple[int, int], bytes, bytes, int]] = []

    @property
    def count(self) -> int:
        """Kinesis records that are left, whole ones."""
        return len(self._page.sequences) - self._at

    @property
    def size(self) -> int:
        """Bytes of the whole page."""
        return self._page.size

    @property
    def is_empty(self) -> bool:
        """Nothing is left."""
        return self._at == len(self._page.sequences) and not self._expanded

    @property
    def position(self) -> tuple[int, int]:
        """Where the next run begins; behind the last record when nothing is left."""
        if self._expanded:
            return self._expanded[-1][0]
        if self._at < len(self._page.sequences):
            first = self._page.sequences[self._at], 0
            return first if self._since is None else max(first, self._since)
        return after(self._page.sequences[-1])

    @property
    def time(self) -> int:
        """When the next record arrived, in milliseconds since the epoch."""
        return self._expanded[-1][3] if self._expanded else self._page.times[self._at]

    def take(
        self, assignment: Assignment, max_records: int, max_bytes: int
    ) -> tuple[list[Message], int]:
        """The next messages, one at least if there is one, and their size in bytes."""
        if self._has_aggregates:
            return self._take_expanded(assignment, max_records, max_bytes)
        return self._take_plain(assignment, max_records, max_bytes)

    def _take_plain(
        self, assignment: Assignment, max_records: int, max_bytes: int
    ) -> tuple[list[Message], int]:
        """The hot loop."""
        page, at = self._page, self._at
        mean = page.size // len(page.sequences) + 1
        end = at + min(max_records, max(max_bytes // mean, 1))
        keys, values = page.keys[at:end], page.data[at:end]
        messages: list[Message] = []
        make, append = Message, messages.append
        for sequence, key, value, time in zip(
            page.sequences[at:end], keys, values, page.times[at:end], strict=True
        ):
            message = make()
            message.assignment = assignment
            message.position = (sequence, 0)
            message.key = key
            message.value = value
            message.headers = ()
            message.timestamp = time
            append(message)
        self._at = min(end, len(page.sequences))
        if self._since is not None:
            messages = self._left_of(messages, self._since)
        return messages, sum(map(len, chain(keys, values)))

    def _left_of(self, messages: list[Message], since: tuple[int, int]) -> list[Message]:
        left = [message for message in messages if message.position >= since]
        if left:
            self._since = None  # the page ascends: only its beginning lies below
        return left

    def _take_expanded(
        self, assignment: Assignment, max_records: int, max_bytes: int
    ) -> tuple[list[Message], int]:
        messages: list[Message] = []
        size = 0
        while len(messages) < max_records and size < max_bytes and self._has_next():
            position, key, value, time = self._expanded.pop()
            messages.append(Message.make(assignment, position, value, key=key, timestamp=time))
            size += len(key) + len(value)
        return messages, size

    def _has_next(self) -> bool:
        """Opens the next record when the last one is used up; an aggregate may be empty."""
        while not self._expanded and self._at < len(self._page.sequences):
            self._expand(self._at)
            self._at += 1
        return bool(self._expanded)

    def _expand(self, at: int) -> None:
        page, since = self._page, self._since
        sequence, time = page.sequences[at], page.times[at]
        users = user_records(page.data[at])
        if users is None:
            users = [(page.keys[at], page.data[at])]
        rows = [((sequence, sub), key, data, time) for sub, (key, data) in enumerate(users)]
        self._expanded = [row for row in rows if since is None or row[0] >= since][::-1]
