"""Limits the memory for what all partitions receive ahead of fetches, in bytes.

The client counts what it receives ahead in messages, for each partition, and limits bytes for producers alone
(apache/pulsar-client-cpp#161). How many messages a consumer may hold is fixed when it is made: afterwards it can
be received from, or not. So the limit covers three parts:

- **The client's queues.** Together they get half of the limit, in equal shares, each as many messages long as the
  largest message fits into its share. A queue counts as if it were full of messages as large as the largest was
  when the queue was made. The broker sends a whole entry for one permit: a producer's batch counts as one message.
- **In hand.** A thread that receives does not know what will come. So it reserves two of the largest messages
  before it receives: for a moment both the client and we hold one.
- **Buffers**, with the bytes that they hold. Each is filled up to its share.

Threads without memory wait in a line, first come, first served. The client does not report that a
message has come, so each thread has to look. A thread that looks in vain delays one whose partition
has messages, so it looks only for a moment, and less and less often.

If nothing is in hand, and all buffered messages belong to partitions that are paused or not granted
yet, no memory would be freed for a long time. Then one thread may receive, whatever the sum is. So
one message at a time exceeds the limit; otherwise a paused partition, or a message that is larger
than expected, could block all others.

A message may be larger than expected. From then on that much is reserved, but never so much that
only one thread could receive: a single chunked message would slow all partitions down for good, and
has exceeded the limit in any case.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Sequence

from consumer_sdk.adapters.pulsar.consumer.messages import Delivery
from consumer_sdk.errors import ConfigurationError

__all__ = ["FREE", "POLL", "ReadAheadBudget", "Turn"]

log = logging.getLogger(__name__)

POLL = 100
"""Milliseconds that a receive waits for a message; the longest that `Pump.hold` and `Pump.stop` take."""

SHORT_POLL = 1
"""The same if no other partition may receive meanwhile: sixty idle partitions wait one after another."""

IDLE = 2
"""Turns without a message after which a partition stays out of the line for a while."""

PAUSES = (0.002, 0.1)
"""Seconds that it stays out at first, and at most; twice as long each time."""

LOOK = 0.1
"""Seconds between two looks whether a thread that waits in the line is to end."""

COPIES = 2
"""Copies of a message while it is received: the client's, and its value for the handler."""

TOO_LITTLE = (
    "memory_limit={limit}: {partitions} partitions with messages of {largest} bytes need {least} bytes: "
    "each may hold one, and one is received: give more, or max_message_size= if no message is that large"
)


OVERBOOKED = (
    "memory_limit={limit}: the queues of the partitions that were there before were made for fewer than {partitions}: "
    "{least} bytes are needed now: start the consumer again, or give more"
)


class Turn:
    """One receive of a thread, which nothing limits."""

    poll = POLL

    def more(self, first: int) -> bool:  # noqa: ARG002 - there is room for anything
        """Whether a batch may be received after the first message, which has ``first`` bytes."""
        return True

    def pause(self, in_vain: int) -> float:  # noqa: ARG002 - nobody else waits
        """Seconds to stay out of the line after ``in_vain`` turns without a message."""
        return 0.0

    def end(self, deliveries: Sequence[Delivery]) -> None:
        """Ends the turn; ``deliveries`` are on their way to the loop."""


FREE = Turn()


class ReadAheadBudget:
    """The memory that all partitions of an adapter share.

    Args:
        limit: bytes for all partitions.
        largest: bytes that a message is expected to have at most.
        most: messages of a native consumer's queue at most.
        batch: bytes of a batch that is received after the first message.

    Attributes:
        partitions: how many share the memory from now on.

    Concurrency: any thread.
    """

    def __init__(self, limit: int, largest: int, most: int, batch: int) -> None:
        self._limit = limit
        self._expected = self._largest = largest
        self._most = most
        self._batch = batch
        self._lock = threading.Lock()
        self._line: deque[threading.Event] = deque()
        self._queues: dict[object, int] = {}
        self._queued = 0
        self._buffers: dict[object, int] = {}
        self._buffered = 0
        self._idle: dict[object, int] = {}
        self._in_hand = 0
        self.partitions = 1

    @property
    def held(self) -> int:
        """Bytes that queues, threads and buffers hold at most, now."""
        return self._queued + self._in_hand + self._buffered

    @property
    def share(self) -> int:
        """Bytes with which a partition's buffer is full; one message may always be in it."""
        free = self._limit - self._queued
        return max(free // max(self.partitions, 1), 1)

    def check(self) -> None:
        """Sees whether the limit is enough for the partitions, beside the queues that some of them have.

        Raises:
            ConfigurationError: the limit cannot be kept.
        """
        self._check((self.partitions + COPIES) * self._largest, TOO_LITTLE)
        new = max(self.partitions - len(self._queues), 0)
        self._check(self._queued + (new + COPIES) * self._largest, OVERBOOKED)

    def _check(self, least: int, text: str) -> None:
        if least > self._limit:
            raise ConfigurationError(
                text.format(
                    limit=self._limit,
                    partitions=self.partitions,
                    largest=self._largest,
                    least=least,
                )
            )

    # In the loop ---------------------------------------------------------------------------

    def queue_of(self, key: object) -> int:
        """How many messages a new native consumer of a partition may hold; its queue counts from now on."""
        with self._lock:
            others, half = self._queued - self._queues.get(key, 0), self._limit // 2
            share = min(half // max(self.partitions, 1), half - others)
            largest = self._largest_in(share)
            queue = max(1, min(self._most, share // largest))
            self._queues[key] = queue * largest
            self._queued = others + queue * largest
        return queue

    def _largest_in(self, room: int) -> int:
        """Bytes of the largest message; of one that was larger than expected, no more than ``room``."""
        return min(self._largest, max(self._expected, room))

    def no_queue(self, key: object) -> None:
        """A partition has left: its queue does not count any more."""
        with self._lock:
            self._queued -= self._queues.pop(key, 0)
            self._tell()

    def buffered(self, key: object, size: int, *, arrived: int = 0, is_idle: bool = False) -> None:
        """A partition's buffer holds ``size`` bytes now.

        Args:
            arrived: bytes that came from its thread, and are not in hand any more.
            is_idle: nobody fetches from it now.
        """
        with self._lock:
            self._in_hand -= arrived
            self._buffered += size - self._buffers.get(key, 0)
            self._buffers[key] = size
            self._idle.pop(key, None)
            if is_idle and size:
                self._idle[key] = size
            self._tell()

    def _tell(self) -> None:
        """Wakes the first thread of the line, which sees whether it may go, and wakes the next."""
        if self._line:
            self._line[0].set()

    # In a thread that receives -------------------------------------------------------------

    def enter(self, is_over: Callable[[], bool]) -> LimitedTurn | None:
        """Waits in the line until the thread may receive.

        Args:
            is_over: whether the thread is to receive nothing any more.

        Returns:
            None: it is not to.
        """
        called = threading.Event()
        with self._lock:
            self._line.append(called)
        while (turn := self._go(called)) is None:
            if is_over():
                self._leave(called)
                return None
            called.wait(LOOK)
        return turn

    def _go(self, called: threading.Event) -> LimitedTurn | None:
        """A turn for the first of the line. Otherwise a thread would have its next turn before others wake."""
        with self._lock:
            called.clear()
            size = self._reservation
            if self._line[0] is not called or not self._reserve(size, is_alone_enough=True):
                return None
            self._line.popleft()
            self._tell()
            is_last = self.held + size > self._limit and self.partitions > 1
            return LimitedTurn(self, size, is_last=is_last)

    @property
    def _reservation(self) -> int:
        """Bytes that are reserved for one receive; two such reservations fit beside the queues."""
        return COPIES * self._largest_in((self._limit - self._queued) // (2 * COPIES))

    def _leave(self, called: threading.Event) -> None:
        with self._lock:
            self._line.remove(called)
            self._tell()

    def _reserve(self, size: int, *, is_alone_enough: bool) -> bool:
        if self.held + size > self._limit and not (is_alone_enough and self._is_stuck()):
            return False
        self._in_hand += size
        return True

    def _is_stuck(self) -> bool:
        """Nobody would free memory."""
        return not self._in_hand and self._buffered == sum(self._idle.values())

    def more(self, reserved: int, first: int) -> int | None:
        """Reserves what a batch needs beside what the first message leaves of its reservation.

        Args:
            reserved: bytes for the first message.
            first: bytes that it has.

        Returns:
            bytes; None: there is no memory for them.
        """
        with self._lock:
            batch = max(self._reservation, COPIES * self._batch)
            size = max(COPIES * first + batch - reserved, 0)
            return size if self._reserve(size, is_alone_enough=False) else None

    def received(self, reserved: int, deliveries: Sequence[Delivery]) -> None:
        """Replaces a reservation by the bytes that have come."""
        size = sum(part.size for part in deliveries)
        try:
            if size > self._largest:
                self._learn(deliveries)
        finally:
            with self._lock:
                self._in_hand += size - reserved
                self._tell()

    def _learn(self, deliveries: Sequence[Delivery]) -> None:
        largest = max(len(m.value or b"") for part in deliveries for m in part.messages)
        with self._lock:
            known, self._largest = self._largest, max(self._largest, largest)
        if largest > known:
            log.warning(
                "a message has %d bytes, and max_message_size=%d: memory_limit=%d may not have been "
                "kept; give a larger max_message_size",
                *(largest, self._expected, self._limit),
            )


class LimitedTurn(Turn):
    """A receive for which memory is reserved.

    Args:
        is_last: there is no memory for another one at the same time.
    """

    def __init__(self, budget: ReadAheadBudget, reserved: int, *, is_last: bool) -> None:
        self._budget = budget
        self._reserved = reserved
        self._is_last = is_last
        self.poll = SHORT_POLL if is_last else POLL

    def more(self, first: int) -> bool:
        more = self._budget.more(self._reserved, first)
        self._reserved += more or 0
        return more is not None

    def pause(self, in_vain: int) -> float:
        if not self._is_last or in_vain < IDLE:
            return 0.0
        shortest, longest = PAUSES
        return float(min(shortest * 2 ** min(in_vain - IDLE, 20), longest))

    def end(self, deliveries: Sequence[Delivery]) -> None:
        reserved, self._reserved = self._reserved, 0
        self._budget.received(reserved, deliveries)
