"""One range, through one native reader.

A reader has a cursor that is not durable: it takes nothing from anyone and leaves nothing behind.
The client's consumers, which receive whole batches and are twice as fast, have durable cursors
only, and one that outlives a killed process holds the topic's data for ever.

- **After a reconnect** the broker sends again from the last message that was read: what does not
  ascend is dropped.
- **The end** is a message that leaves nothing below the stop, or one beyond it; where neither comes
  (ledgers that were deleted, entries that hold no message) the client is asked whether there are more.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

import _pulsar

from consumer_sdk.adapters.pulsar.calls import call
from consumer_sdk.adapters.pulsar.faults import translate
from consumer_sdk.adapters.pulsar.ids import Place, id_at
from consumer_sdk.adapters.pulsar.ranges.decoding import Part, ends_at, place
from consumer_sdk.errors import ConsumerSdkError, TransientAdapterError
from consumer_sdk.range_reads import Columns

__all__ = ["NativeReader", "RangeReading"]

log = logging.getLogger(__name__)

POLL = 100
"""Milliseconds that a read waits for a first message; the longest that a close waits for a read."""

LULL = 5
"""Milliseconds that it waits for each further one: with less than a part, it does not wait for long."""

MOST = 20_000
"""Messages of a part: small ones would take long to fill its bytes."""

CLOSE = 2.0
"""Seconds for the broker's answer to a close; the client goes on with it."""


class NativeReader:
    """The client's reader of one topic partition, inclusive.

    Args:
        threads: where what blocks runs.
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

    async def open(self, start: Any, configuration: Any) -> None:
        """At a message id, whose message is the first one.

        Raises:
            AdapterError: the broker refuses, or does not answer.
        """
        configuration.start_message_id_inclusive(True)
        self._native = await self._ask(
            lambda done: self._client.create_reader_async(self.topic, start, configuration, done),
            f"reading {self.topic}",
            late=lambda native: native.close_async(lambda _: None),
        )

    async def _ask(self, start: Any, doing: str, **late: Any) -> Any:
        try:
            async with asyncio.timeout(self._patience):
                return await call(start, doing, **late)
        except TimeoutError as error:
            raise TransientAdapterError(f"{doing}: no answer") from error

    async def seek(self, time: float) -> None:
        """To the first entry that was published at or after a time in seconds.

        Raises:
            AdapterError: the broker refuses, or does not answer.
        """
        at = max(round(time * 1000), 0)
        await self._ask(
            lambda done: self._native.seek_async(at, done), f"seeking {at} in {self.topic}"
        )

    async def has_more(self) -> bool:
        """Behind the last message that was read; before the first, at the start.

        Raises:
            AdapterError: the broker refuses, or does not answer.
        """
        doing = f"asking {self.topic} for its last message"
        return bool(await self._ask(self._native.has_message_available_async, doing))

    async def run(self, work: Any, *arguments: Any) -> Any:
        """Calls what blocks, for `POLL` at most, with the native reader.

        Cancellation: waits for it, since it would race with the reader's end.
        """
        loop = asyncio.get_running_loop()
        running = loop.run_in_executor(self._threads, work, self._native, *arguments)
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
        if native is None:
            return
        try:
            async with asyncio.timeout(CLOSE):
                await call(native.close_async, f"closing the reader of {self.topic}")
        except (ConsumerSdkError, TimeoutError) as error:
            log.info("closing the reader of %s: %r", self.topic, error)


class RangeReading:
    """Reads from a start to a stop.

    Args:
        reader: not opened.
        stall: seconds without anything after which the broker counts as stuck.

    Attributes:
        first: the first position that came, also one at the stop or behind it.
        has_records: something was read.
    """

    def __init__(self, reader: NativeReader, start: Place, stop: Place, *, stall: float) -> None:
        self._reader = reader
        self._start = start
        self._stop = stop
        self._stall = stall
        self._last: Place = (start[0], start[1], start[2] - 1)
        self._is_done = not start < stop
        self.first: Place | None = None
        self.has_records = False

    async def parts(
        self, configuration: Any, *, with_headers: bool, max_bytes: int
    ) -> AsyncGenerator[Columns, None]:
        """Everything, once and in order.

        Raises:
            TransientAdapterError: nothing has come for too long, although there is more.
            AdapterError: the broker refuses.
        """
        if self._is_done:
            return
        try:
            await self._reader.open(id_at(self._start), configuration)
            while not self._is_done:
                part = await self._next(with_headers=with_headers, max_bytes=max_bytes)
                if len(part):
                    self.has_records = True
                    yield part.columns()
        finally:
            await asyncio.shield(self._reader.aclose())

    async def _next(self, *, with_headers: bool, max_bytes: int) -> Part:
        """Empty only at the end."""
        try:
            async with asyncio.timeout(self._stall):
                while True:
                    part = Part(with_headers=with_headers)
                    await self._reader.run(self._read, part, max_bytes)
                    if len(part) or self._is_done or await self._is_over():
                        return part
        except TimeoutError as error:
            raise TransientAdapterError(
                f"{self._reader.topic}: nothing came after {self._last} for {self._stall:g} s, "
                f"although there is more: read again"
            ) from error

    async def _is_over(self) -> bool:
        """A question that fails is asked again: while the connection is away, nobody knows."""
        with suppress(TransientAdapterError):
            self._is_done = not await self._reader.has_more()
        return self._is_done

    # In a thread -------------------------------------------------------------------------

    def _read(self, native: Any, part: Part, max_bytes: int) -> None:
        """The hot path: takes what there is, up to the stop or the size of a part."""
        read_next, wait, last, stop = native.read_next, POLL, self._last, self._stop
        try:
            while part.size < max_bytes and len(part) < MOST:
                raw = read_next(wait)
                wait = LULL
                native_id = raw.message_id()
                here = place(native_id)
                if self.first is None:
                    self.first = here
                if here >= stop:
                    self._is_done = True
                    return
                if here <= last:
                    continue
                last = here
                part.add(raw, here)
                if ends_at(native_id, here, stop):
                    self._is_done = True
                    return
        except _pulsar.Timeout:
            return  # there is no more for now
        finally:
            self._last = last
