"""The shards that are held, each with the records that were read ahead."""

from __future__ import annotations

import asyncio
import logging
import math
from collections import deque
from collections.abc import Callable
from itertools import chain
from operator import methodcaller

from consumer_sdk.adapters.assignment_book import BaseGrant, next_epoch
from consumer_sdk.adapters.kinesis.service.aggregation import MAGIC, user_records
from consumer_sdk.adapters.kinesis.service.service import Page
from consumer_sdk.adapters.kinesis.starts import NOTHING_LEFT, after
from consumer_sdk.errors import PositionOutOfRangeError
from consumer_sdk.records import Assignment, AtPosition, Message, Partition, Run, Start, StartPoint

__all__ = ["Grant", "PageBuffer"]

# -- what was read of a shard and not fetched yet --------------------------------------------------

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


# -- the shards that are held ----------------------------------------------------------------------

log = logging.getLogger(__name__)

RECORDS_AHEAD = 10_000
"""What a grant may have unread before more is read for it: one answer's worth."""


class Grant(BaseGrant):
    """One epoch of a shard; the fence of its assignment is the lease's.

    Attributes:
        cursor: where the next page is to be read from.
        behind: milliseconds behind the tip, as the last page said; None before the first page.
        is_ended: the last record was read.
        horizon: the first position that is left, if a read has found that the shard was trimmed.
        is_refused: Kinesis refuses the cursor, because it has expired. No record is lost by that.
        changed: set when there may be room to read again.
        size: bytes that were read and not fetched.
        on_size: called with each change of that.

    Args:
        on_news: called when there is something to fetch.
    """

    def __init__(
        self, stream: str, shard: str, fence: int, on_news: Callable[[], None] = lambda: None
    ) -> None:
        super().__init__(Assignment(Partition(stream, shard), next_epoch(), fence))
        self.cursor: Start = StartPoint.EARLIEST
        self.behind: int | None = None
        self.is_ended = False
        self.horizon: tuple[int, int] | None = None
        self.is_refused = False
        self.changed = asyncio.Event()
        self.size = 0
        self.on_size: Callable[[int], None] = lambda _: None
        self._on_news = on_news
        self._unread: deque[PageBuffer] = deque()
        self._forgotten: int | None = None
        self._heard = self._overdue = math.inf
        self._fault: Exception | None = None
        self._has_fault = False
        self._end_is_told = False

    def __repr__(self) -> str:
        return f"<Grant {self.shard} {self.state.value} epoch={self.assignment.epoch}>"

    @property
    def key(self) -> str:
        return self.shard

    @property
    def shard(self) -> str:
        """Its id."""
        return self.assignment.partition.id

    @property
    def fence(self) -> int:
        """That of its lease."""
        return self.assignment.fence or 0

    # -- reading ahead ------------------------------------------------------------------

    @property
    def wants_more(self) -> bool:
        """Whether to read another page now."""
        has_room = sum(unread.count for unread in self._unread) < RECORDS_AHEAD
        return self.is_fetched and not self.is_ended and not self._has_fault and has_room

    def begin(self, start: Start) -> None:
        """Opens the grant: the shard is read from now on."""
        self.cursor = start
        self.changed.set()

    @property
    def place(self) -> Start:
        """Where Kinesis is asked to begin."""
        return StartPoint.EARLIEST if self.is_refused else self.cursor

    @property
    def is_at_settled(self) -> bool:
        """Whether the record at the cursor is settled, so only later records matter."""
        cursor = self.cursor
        return isinstance(cursor, AtPosition) and (
            cursor.is_settled or cursor.position == after(cursor.position[0])
        )

    def take_in(self, page: Page) -> None:
        """A page was read at the cursor.

        Raises:
            PositionOutOfRangeError: the record at the cursor is no longer stored.
        """
        self._check_place(page)
        self._forgotten = None
        if page.sequences and self._is_read(page.sequences[0]):
            page = page.without_first()
        if page.sequences:
            since = self.cursor.position if isinstance(self.cursor, AtPosition) else None
            self._unread.append(PageBuffer(page, since))
            self._resize(page.size)
            self.cursor = AtPosition(after(page.sequences[-1]))
            self.is_refused = False
        self.behind = page.behind
        self.is_ended = page.next is None
        if page.sequences or self.is_ended:
            self._on_news()

    def _check_place(self, page: Page) -> None:
        """Kinesis gives what is left, in silence, where it has trimmed what was asked for."""
        if not _is_said(page):
            return
        if not self.is_trimmed(page):
            self._check_shard(page)
        elif not self.is_at_settled:
            raise self.lost(page)
        elif page.is_first:
            self._warn_of_gap(page)

    def has_gap(self, page: Page) -> bool:
        """Whether the shard was asked for the record at the cursor, and gave a later one."""
        return page.is_first and _is_said(page) and self.is_trimmed(page)

    def _check_shard(self, page: Page) -> None:
        """What was refused for its age cannot be newer than what is stored."""
        if self.is_refused:
            raise self.refused(f"the shard begins at {page.sequences[0]}")

    def _is_read(self, sequence: int) -> bool:
        """All of this record: it was asked for to see whether it is still there."""
        return isinstance(self.cursor, AtPosition) and self.cursor.position == after(sequence)

    def is_trimmed(self, left: Page) -> bool:
        """Whether the record at the cursor is older than this one, the first that is left."""
        if not isinstance(self.cursor, AtPosition):
            return False
        return not left.sequences or left.sequences[0] > self.cursor.position[0]

    def lost(self, left: Page | None = None) -> PositionOutOfRangeError:
        """Makes the fault of a shard whose unread records have expired, and sets the horizon.

        Args:
            left: the first page that is left; None if the shard itself is gone.
        """
        if left is not None and left.sequences:
            self.horizon = left.sequences[0], 0
        elif isinstance(self.cursor, AtPosition):
            self.horizon = after(self.cursor.position[0])
        else:
            self.horizon = NOTHING_LEFT
        begin = left.sequences[0] if left is not None and left.sequences else "its end"
        return PositionOutOfRangeError(
            f"{self.assignment.partition}: {self._what_is_open()}, and the stream's retention has "
            f"passed it: the shard now begins at {begin}. Set out_of_range='earliest' to go on "
            f"there; a longer retention period prevents it"
        )

    def _what_is_open(self) -> str:
        if isinstance(self.cursor, AtPosition):
            return f"the record {self.cursor.position[0]} is not settled"
        return "nothing of this shard was read"

    def refused(self, why: object) -> PositionOutOfRangeError:
        """Makes the fault of a position that Kinesis refuses."""
        where = self.cursor.position if isinstance(self.cursor, AtPosition) else self.cursor
        return PositionOutOfRangeError(
            f"{self.assignment.partition}: there is no position {where}: {why}. It has expired, or "
            f"is none of this shard. Set out_of_range='earliest' or 'latest' to go on; a longer "
            f"retention period prevents that positions expire"
        )

    def _warn_of_gap(self, left: Page) -> None:
        log.warning(
            "%s: the record %s is settled, and has expired, as others after it may have that were "
            "never read: Kinesis does not tell how many. It goes on at %s; a longer retention "
            "period prevents it",
            *(self.assignment.partition, self.cursor.position[0]),  # type: ignore[union-attr] # the caller has checked
            left.sequences[0] if left.sequences else "its end",
        )

    def fail(self, fault: Exception) -> None:
        """Stops reading until the owner resumes it. Records that were read come before the fault."""
        self._fault, self._has_fault = fault, True
        self._on_news()

    def forget_unread(self) -> None:
        """Drops unread records to free memory; they are read again if they are still wanted."""
        if self._unread:
            self._forgotten = self._unread[0].time
            self.cursor = AtPosition(self._unread[0].position)
            self.is_refused = False
            self._unread.clear()
            self.is_ended = False
            self._resize(-self.size)

    def _resize(self, change: int) -> None:
        self.size += change
        self.on_size(change)

    # -- fetching -----------------------------------------------------------------------

    @property
    def has_run(self) -> bool:
        """`take` has something."""
        return bool(self._unread or self._fault or self._is_at_end) and self.is_fetched

    @property
    def _is_at_end(self) -> bool:
        return self.is_ended and not self._end_is_told

    def take(self, max_records: int, max_bytes: int) -> Run:
        """The next run. The end is reported only after all records."""
        run = Run(self.assignment, ascends=True)
        if self._unread:
            self._take_messages(run, max_records, max_bytes)
        elif self._fault is not None:
            run.fault, self._fault = self._fault, None
            return run
        if self._is_at_end and not self._unread:
            run.ended = self._end_is_told = True
        return run

    def _take_messages(self, run: Run, max_records: int, max_bytes: int) -> None:
        unread = self._unread[0]
        before = unread.size
        run.messages, run.size = unread.take(self.assignment, max_records, max_bytes)
        self._resize(unread.size - before)  # an aggregate may be much larger than its bytes
        run.next_position = unread.position
        if unread.is_empty:
            self._unread.popleft()
            self._resize(-unread.size)
        self.changed.set()

    def pause(self) -> None:
        """Nothing is read or fetched."""
        self.is_paused = True

    def resume(self) -> None:
        """Undoes `pause`, and what a fault has stopped."""
        self.is_paused = self._has_fault = False
        self.changed.set()
        self._on_news()

    def heard(self, now: float, *, until: float) -> None:
        """Notes that a page came. If no other one comes by ``until``, its lag is out of date.

        Args:
            now, until: loop time.
        """
        self._heard, self._overdue = now, until

    def doubt(self) -> None:
        """Notes that the lag of the last page is out of date, because a read has failed."""
        self._overdue = self._heard

    def lag(self, now: float, loop_time: float = 0.0) -> int | None:
        """Milliseconds behind the tip: the lag of the next unread record, or else that of the last page.

        While the next page is overdue, the time since the last one is added, because records may
        have arrived.

        Args:
            now: the service's clock.
            loop_time: that of `heard`.
        """
        next_time = self._unread[0].time if self._unread else self._forgotten
        if next_time is not None:
            return max(round(now * 1000) - next_time, 0)
        if self.behind is None or self.is_ended or loop_time <= self._overdue:
            return self.behind
        return self.behind + round((loop_time - self._heard) * 1000)

    def close(self) -> None:
        super().close()
        self._unread.clear()
        self._fault = None
        self._resize(-self.size)
        self.changed.set()


def _is_said(page: Page) -> bool:
    """Whether the page tells where the shard goes on: a page without records may be any."""
    return bool(page.sequences) or page.next is None
