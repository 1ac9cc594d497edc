"""The client's readers: awaited, kept open between ranges, and with a queue as long as memory allows.

A reader has a cursor that is not durable: it takes no message from a subscription, and leaves none
behind. The client's consumers receive whole batches and are twice as fast, but have only durable
cursors: a cursor that outlives a killed process would keep the topic's data for ever.

Opening a reader takes three answers of the broker. So a reader that has come to the end of its range is kept
for `IDLE` seconds: mostly the next range of a stream begins there. A reader that nobody takes is closed then,
since it shows up in the topic's statistics.

The broker sends a number of messages ahead (the queue), whatever their size. So the size of a
topic's messages is learned: from the REST API before the first read, if its address is known, and
then from the messages.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import _pulsar

from consumer_sdk.adapters.pulsar.client.calls import ask, close
from consumer_sdk.adapters.pulsar.client.faults import translate
from consumer_sdk.adapters.pulsar.client.ids import Place
from consumer_sdk.adapters.pulsar.client.interpreter_exit import close_late
from consumer_sdk.adapters.pulsar.client.topics import topic_of
from consumer_sdk.adapters.pulsar.ranges.topic_stats import Sizes
from consumer_sdk.errors import (
    AdapterError,
    ConfigurationError,
    ConsumerClosedError,
    TransientAdapterError,
)
from consumer_sdk.records import Partition

__all__ = ["POLL", "QUEUE_BYTES", "Kept", "KeptReaders", "NativeReader", "Queue", "Queues"]

POLL = 100
"""Milliseconds that a read waits for a first message; the longest that a close waits for a read."""

AGAIN = 0.1
"""Seconds until what failed for now is asked again."""

CLOSE = 2.0
"""Seconds for the broker's answer to a close; the client goes on with it."""


class NativeReader:
    """The client's reader of one topic partition, awaited.

    Args:
        threads: run the calls that block.
        patience: seconds for one answer of the broker.
    """

    def __init__(
        self, client: Any, topic: str, threads: ThreadPoolExecutor, *, patience: float
    ) -> None:
        self._client = client
        self._threads = threads
        self._patience = patience
        self._native: Any = None
        self.topic = topic

    @property
    def is_connected(self) -> bool:
        """It is open, and the client has a connection for it now."""
        return self._native is not None and bool(self._native.is_connected())

    async def open(self, start: Any, configuration: Any) -> None:
        """Opens it at a message id, whose message is the first to be read.

        Raises:
            AdapterError: the broker refuses, or does not answer.
        """
        configuration.start_message_id_inclusive(True)
        self._native = await ask(
            lambda done: self._client.create_reader_async(self.topic, start, configuration, done),
            f"reading {self.topic}",
            self._patience,
            late=close_late,
        )

    async def seek(self, time: float) -> None:
        """Moves it to the first entry that was published at or after a time, in seconds since the epoch.

        Raises:
            AdapterError: the broker refuses, or does not answer.
        """
        at = max(round(time * 1000), 0)
        doing = f"seeking {at} in {self.topic}"
        await ask(lambda done: self._native.seek_async(at, done), doing, self._patience)

    async def has_more(self) -> bool:
        """Whether the topic has a message behind the last one that was read.

        A question that fails for now is asked again, since a reader is gone for a moment after each seek:
        1. the broker answers the seek, and closes the reader;
        2. it is asked for the reader's last message, and knows no such reader (BrokerMetadataError);
        3. the client opens the reader again. An unload of the topic does the same.

        Raises:
            AdapterError: the broker refuses, or does not answer.
        """
        doing = f"asking {self.topic} for its last message"
        now = asyncio.get_running_loop().time
        until = now() + self._patience
        while True:
            try:
                left = max(until - now(), 0.0)
                return bool(await ask(self._native.has_message_available_async, doing, left))
            except TransientAdapterError:
                if now() + AGAIN >= until:
                    raise
            await asyncio.sleep(AGAIN)

    async def run(self, work: Any, *arguments: Any) -> Any:
        """Calls ``work`` with the native reader in a thread; it may block for `POLL` at most.

        Raises:
            ConsumerClosedError: the threads were ended meanwhile.
            AdapterError: the client failed.

        Cancellation: waits for the call, which would race with the reader's close.
        """
        loop = asyncio.get_running_loop()
        try:
            running = loop.run_in_executor(self._threads, work, self._native, *arguments)
        except RuntimeError as error:
            raise ConsumerClosedError(f"{self.topic}: the connection was closed") from error
        try:
            return await asyncio.shield(running)
        except asyncio.CancelledError:
            await asyncio.wait({running})
            raise
        except _pulsar.PulsarException as error:
            raise translate(error, f"reading {self.topic}") from error

    async def aclose(self) -> None:
        """Closes it, within `CLOSE`."""
        native, self._native = self._native, None
        if native is not None:
            what = f"the reader of {self.topic}"
            await close(native, what, patience=CLOSE, level=logging.INFO)


# -- kept between ranges ----------------------------------------------------------------------

IDLE = 10.0
"""Seconds that a reader is kept."""

MOST = 16
"""Readers that are kept at most; the one that was kept the longest is closed."""

SKIPPED = 64
"""Entries that a kept reader may drop to come to a start: another process may have read those."""


@dataclass(frozen=True, slots=True)
class Kept:
    """An open reader that waits for the next range.

    Attributes:
        begin: the position that it was opened at.
        stands: the position of the next message.
        queue: messages that the broker sends it ahead.
    """

    reader: NativeReader
    begin: Place
    stands: Place
    queue: int

    def reaches(self, start: Place) -> bool:
        """Its next message is at a range's start, or at most `SKIPPED` entries before it."""
        ledger, entry, _ = self.stands
        is_near = start[0] == ledger and entry <= start[1] <= entry + SKIPPED
        return is_near and start >= self.stands and self.reader.is_connected


class KeptReaders:
    """Readers that are kept, one for each topic at most.

    Concurrency: belongs to one event loop.
    """

    def __init__(self) -> None:
        self._kept: OrderedDict[str, tuple[Kept, asyncio.TimerHandle]] = OrderedDict()
        self._closing: set[asyncio.Task[None]] = set()
        self._is_closed = False

    def take(self, topic: str, start: Place) -> Kept | None:
        """The reader of a topic that reaches a start, or None; the caller owns it from now on."""
        kept = self._pop(topic)
        if kept is None or kept.reaches(start):
            return kept
        self._close(kept)
        return None

    def keep(self, kept: Kept) -> None:
        """Takes over a reader whose range was read to its end."""
        topic = kept.reader.topic
        self._drop(topic)
        if self._is_closed:
            self._close(kept)
            return
        timer = asyncio.get_running_loop().call_later(IDLE, self._drop, topic)
        self._kept[topic] = kept, timer
        if len(self._kept) > MOST:
            self._drop(next(iter(self._kept)))

    async def aclose(self) -> None:
        """Closes all of them, each within `CLOSE`."""
        self._is_closed = True
        for topic in list(self._kept):
            self._drop(topic)
        if self._closing:
            await asyncio.wait(self._closing)

    def _pop(self, topic: str) -> Kept | None:
        kept, timer = self._kept.pop(topic, (None, None))
        if timer is not None:
            timer.cancel()
        return kept

    def _drop(self, topic: str) -> None:
        kept = self._pop(topic)
        if kept is not None:
            self._close(kept)

    def _close(self, kept: Kept) -> None:
        task = asyncio.create_task(kept.reader.aclose())
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)


# -- how much is sent ahead -------------------------------------------------------------------

QUEUE_BYTES = 32 * 2**20
"""About how many bytes the broker sends ahead of each read."""

KEPT_BYTES = 4 * 2**20
"""About how many bytes the queue of a kept reader may hold."""


class Queue:
    """How many messages the readers of one topic are sent ahead.

    Args:
        most: messages at most, however small they are.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._mean: float | None = None

    @property
    def length(self) -> int:
        """Messages that the next reader is to be sent ahead."""
        return min(self._most, max(int(QUEUE_BYTES / (self._mean or 1.0)), 1))

    def weigh(self, count: int, size: float) -> None:
        """Learns that ``count`` messages have ``size`` bytes together."""
        self._mean = max(size / count, 1.0)

    def is_too_long(self, length: int) -> bool:
        """A reader's queue is more than twice as long as it should be."""
        return length > 2 * self.length

    def may_stay(self, length: int) -> bool:
        """The queue of a reader that waits for its next range is small enough."""
        return self._mean is not None and length * self._mean <= KEPT_BYTES


class Queues:
    """The queues of all topics.

    Args:
        sizes: tells the size of a topic's records, if the REST API is known.
        most: messages of a queue at most.
    """

    def __init__(self, sizes: Sizes, most: int) -> None:
        self._sizes = sizes
        self._most = most
        self._queues: dict[str, Queue] = {}

    async def of(self, partition: Partition) -> Queue:
        """The queue of a partition. Its record size is asked for once; without an answer it is learned."""
        topic = topic_of(partition)
        if topic not in self._queues:
            queue = Queue(self._most)
            with suppress(AdapterError, ConfigurationError):
                if (size := await self._sizes.record_size(partition)) is not None:
                    queue.weigh(1, size)
            self._queues[topic] = queue
        return self._queues[topic]
