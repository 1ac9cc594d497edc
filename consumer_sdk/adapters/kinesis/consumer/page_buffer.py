"""What was read of a shard and not fetched yet: made into messages as they are asked for."""

from __future__ import annotations

from itertools import chain
from operator import methodcaller

from consumer_sdk.adapters.kinesis.service.aggregation import MAGIC, user_records
from consumer_sdk.adapters.kinesis.service.service import Page
from consumer_sdk.adapters.kinesis.starts import after
from consumer_sdk.records import Assignment, Message

__all__ = ["PageBuffer"]


USER_BYTES = 120
"""What a user record takes in memory beside its bytes: its tuple, its data's object, its place."""


IS_AGGREGATE = methodcaller("startswith", MAGIC)


class PageBuffer:
    """The unread part of one page.

    Args:
        page: has at least one record.
        since: user records below this position are left out; None for none.
    """

    __slots__ = ("_at", "_has_aggregates", "_page", "_since", "_sub", "_users")

    def __init__(self, page: Page, since: tuple[int, int] | None = None) -> None:
        self._page = page
        self._since = since
        self._at = 0
        self._has_aggregates = any(map(IS_AGGREGATE, page.data))
        # The user records of the last record that was begun, and the next one of them.
        self._users: list[tuple[bytes, bytes]] = []
        self._sub = 0

    @property
    def count(self) -> int:
        """Kinesis records that are left, whole ones."""
        return len(self._page.sequences) - self._at

    @property
    def size(self) -> int:
        """Bytes of the whole page, and of the user records that were made of it and not taken."""
        return self._page.size + USER_BYTES * len(self._users)

    @property
    def is_empty(self) -> bool:
        """Nothing is left."""
        return self._at == len(self._page.sequences) and not self._users

    @property
    def position(self) -> tuple[int, int]:
        """Where the next run begins; behind the last record when nothing is left."""
        if self._users:
            return self._page.sequences[self._at - 1], self._sub
        if self._at < len(self._page.sequences):
            first = self._page.sequences[self._at], 0
            return first if self._since is None else max(first, self._since)
        return after(self._page.sequences[-1])

    @property
    def time(self) -> int:
        """When the next record arrived, in milliseconds since the epoch."""
        return self._page.times[self._at - bool(self._users)]

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
            size += self._take_users(
                messages, assignment, max_records - len(messages), max_bytes - size
            )
        return messages, size

    def _take_users(
        self, messages: list[Message], assignment: Assignment, max_records: int, max_bytes: int
    ) -> int:
        """Adds user records of the record that was begun; returns their bytes."""
        sequence, time, size = self._page.sequences[self._at - 1], self.time, 0
        make, append = Message.make, messages.append
        for key, value in self._users[self._sub : self._sub + max_records]:
            append(make(assignment, (sequence, self._sub), value, key=key, timestamp=time))
            self._sub += 1
            size += len(key) + len(value)
            if size >= max_bytes:
                break
        if self._sub == len(self._users):
            self._users = []
        return size

    def _has_next(self) -> bool:
        """Opens the next record when the last one is used up; an aggregate may be empty."""
        while not self._users and self._at < len(self._page.sequences):
            self._expand(self._at)
            self._at += 1
        return bool(self._users)

    def _expand(self, at: int) -> None:
        page, since = self._page, self._since
        users = user_records(page.data[at])
        if users is None:
            users = [(page.keys[at], page.data[at])]
        sequence, self._sub = page.sequences[at], 0
        if since is not None and since >= (sequence, 0):
            self._sub = since[1] if since[0] == sequence else len(users)
        self._users = users if self._sub < len(users) else []
