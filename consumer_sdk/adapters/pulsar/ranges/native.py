"""The client's reader, awaited.

A reader has a cursor that is not durable: it takes nothing from anyone and leaves nothing behind.
The client's consumers, which receive whole batches and are twice as fast, have durable cursors
only, and one that outlives a killed process holds the topic's data for ever.
"""

from __future__ import annotations

import asyncio
import logging
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import _pulsar

from consumer_sdk.adapters.pulsar.client.calls import ask, call
from consumer_sdk.adapters.pulsar.client.faults import translate
from consumer_sdk.adapters.pulsar.client.interpreter_exit import close_late
from consumer_sdk.errors import ConsumerClosedError, ConsumerSdkError, TransientAdapterError

__all__ = ["POLL", "NativeReader"]

log = logging.getLogger(__name__)

POLL = 100
"""Milliseconds that a read waits for a first message; the longest that a close waits for a read."""

AGAIN = 0.1
"""Seconds until what failed for now is asked again."""

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

    @property
    def is_connected(self) -> bool:
        """It is open, and has a connection at the moment."""
        return self._native is not None and bool(self._native.is_connected())

    async def open(self, start: Any, configuration: Any) -> None:
        """At a message id, whose message is the first one.

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
        """To the first entry that was published at or after a time in seconds.

        Raises:
            AdapterError: the broker refuses, or does not answer.
        """
        at = max(round(time * 1000), 0)
        doing = f"seeking {at} in {self.topic}"
        await ask(lambda done: self._native.seek_async(at, done), doing, self._patience)

    async def has_more(self) -> bool:
        """Behind the last message that was read; before the first, at the start.

        (1) A seek is answered; (2) the broker closes the reader; (3) it is asked for its last message,
        and knows no such reader: BrokerMetadataError; (4) the client opens the reader again. The same
        comes of an unload. So what fails for now is asked again.

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
        """Calls what blocks, for `POLL` at most, with the native reader.

        Raises:
            ConsumerClosedError: the threads were ended meanwhile.
            AdapterError: the client failed.

        Cancellation: waits for it, since it would race with the reader's end.
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
        if native is None:
            return
        try:
            async with asyncio.timeout(CLOSE):
                await call(native.close_async, f"closing the reader of {self.topic}")
        except (ConsumerSdkError, TimeoutError) as error:
            log.info("closing the reader of %s: %r", self.topic, error)
