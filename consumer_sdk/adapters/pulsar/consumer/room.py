"""Room in memory for what all partitions receive ahead of fetches, in bytes.

The client counts what it receives ahead in messages, for each partition, and has a limit of bytes for
producers alone (apache/pulsar-client-cpp#161). How many messages a consumer may hold is fixed when it is made:
afterwards it can be received from, or not. So three things make the limit:

- **The client's queues.** Each is as long as a part of half the limit has largest messages, and
  counts as if it were full of them, of the largest as it was when the queue was made. The broker sends
  a whole entry for one permit: a producer's batch counts as one.
- **In hand.** A thread that receives does not know what will come. It reserves two of the largest
  messages before it does: there are the client's and ours for a moment.
- **Buffers**, with what they hold; each is filled up to its share.

Where there is room for one receive and no other, those who wait stand in line. The client tells nobody that a message has
come, so that each has to look for itself, and whoever looks in vain holds up one that has some: it looks for a moment, and then ever more rarely.

Where nothing is in hand, and all that is buffered is of partitions that are paused or not granted yet, nobody would make room
for as long as that takes. Then one may receive, whatever the sum. So one message at a time goes beyond the limit, where
otherwise a partition that is paused, or a message that is larger than expected, could hold up all.

A message may be larger than expected all the same. Then as much is reserved from then on, but never so much that
only one could receive: a single message in chunks would slow all down for good, and has broken the limit in any case.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Sequence

from consumer_sdk.adapters.pulsar.consumer.messages import Delivery
from consumer_sdk.errors import ConfigurationError

__all__ = ["FREE", "POLL", "Room", "Turn"]

log = logging.getLogger(__name__)

POLL = 100
"""Milliseconds that an idle receive waits; the longest that `Pump.hold` and `Pump.stop` take."""

SHORT_POLL = 1
"""The same where no other partition may receive meanwhile: of sixty idle ones each is waited for."""

IDLE = 2
"""Turns without a message, after which a partition stays out of the line for a while."""

PAUSES = (0.002, 0.1)
"""Seconds that it stays out at first, and at most; each time for twice as long."""

LOOK = 0.1
"""Seconds between two looks whether a thread that waits for room is to end."""

COPIES = 2
"""Of a message while it is received: the client's, and its value for the handler."""

TOO_LITTLE = (
    "memory_limit={limit}: {partitions} partitions with messages of {largest} bytes need {least} bytes: "
    "each may hold one, and one is received: give more, or max_message_size= if no message is that large"
)


OVERBOOKED = (
    "memory_limit={limit}: the queues of the partitions that were there before were made for fewer than {partitions}: "
    "{least} bytes are needed now: start the consumer again, or give more"
)


class Turn:
    """A receive that nothing limits."""

    poll = POLL

    def more(self, first: int) -> bool:  # noqa: ARG002 - there is room for anything
        """A batch may be received behind the first message, which has so many bytes."""
        return True

    def pause(self, in_vain: int) -> float:  # noqa: ARG002 - nobody else waits
        """Seconds to stay away after so many turns without a message."""
        return 0.0

    def end(self, deliveries: Sequence[Delivery]) -> None:
        """What was received is on its way to the loop."""


FREE = Turn()


class Room:
    """Of one adapter.

    Args:
        limit: bytes for all partitions.
        largest: bytes that a message is expected to have at most.
        most: messages of a queue at most.
        batch: bytes that are received at a time, beside the first message.

    Attributes:
        partitions: how many share it; from now on.

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
        """Bytes that are held at most."""
        return self._queued + self._in_hand + self._buffered

    @property
    def share(self) -> int:
        """Bytes with which a partition's buffer is full; one message may always be in it."""
        free = self._limit - self._queued
        return max(free // max(self.partitions, 1), 1)

    def check(self) -> None:
        """Whether there is room for the partitions, beside the queues that some of them have.

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
        """How many messages a new consumer of a partition may hold; it counts from now on."""
        with self._lock:
            others, half = self._queued - self._queues.get(key, 0), self._limit // 2
            share = min(half // max(self.partitions, 1), half - others)
            largest = self._largest_in(share)
            queue = max(1, min(self._most, share // largest))
            self._queues[key] = queue * largest
            self._queued = others + queue * largest
        return queue

    def _largest_in(self, room: int) -> int:
        """Bytes of the largest message, but of one that was larger than expected, no more than the room."""
        return min(self._largest, max(self._expected, room))

    def no_queue(self, key: object) -> None:
        """A partition has left."""
        with self._lock:
            self._queued -= self._queues.pop(key, 0)
            self._tell()

    def buffered(self, key: object, size: int, *, arrived: int = 0, is_idle: bool = False) -> None:
        """A partition's buffer holds so much.

        Args:
            arrived: bytes that are not in hand any more.
            is_idle: nobody fetches it now.
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
        """Whoever is first looks whether there is room now, and tells the next."""
        if self._line:
            self._line[0].set()

    # In a thread that receives -------------------------------------------------------------

    def enter(self, is_over: Callable[[], bool]) -> LimitedTurn | None:
        """Waits for room, in turn.

        Returns:
            None: it is over.
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
        """Nobody goes before who came first: one that leaves would be in again before others wake."""
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
        """Bytes for one receive; at least two fit beside the queues."""
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
        """Nobody would make room."""
        return not self._in_hand and self._buffered == sum(self._idle.values())

    def more(self, reserved: int, first: int) -> int | None:
        """Reserves what a batch needs beside what the first message leaves of its reservation.

        Args:
            reserved: bytes for the first message.
            first: bytes that it has.

        Returns:
            bytes; None: there is no room.
        """
        with self._lock:
            batch = max(self._reservation, COPIES * self._batch)
            size = max(COPIES * first + batch - reserved, 0)
            return size if self._reserve(size, is_alone_enough=False) else None

    def received(self, reserved: int, deliveries: Sequence[Delivery]) -> None:
        """What was reserved becomes what has come."""
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
    """A receive for which there is room.

    Args:
        is_last: there is no room for another one at the same time.
    """

    def __init__(self, room: Room, reserved: int, *, is_last: bool) -> None:
        self._room = room
        self._reserved = reserved
        self._is_last = is_last
        self.poll = SHORT_POLL if is_last else POLL

    def more(self, first: int) -> bool:
        more = self._room.more(self._reserved, first)
        self._reserved += more or 0
        return more is not None

    def pause(self, in_vain: int) -> float:
        if not self._is_last or in_vain < IDLE:
            return 0.0
        shortest, longest = PAUSES
        return float(min(shortest * 2 ** min(in_vain - IDLE, 20), longest))

    def end(self, deliveries: Sequence[Delivery]) -> None:
        reserved, self._reserved = self._reserved, 0
        self._room.received(reserved, deliveries)
