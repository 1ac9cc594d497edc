"""Native producers, one for each topic, to write records that have to be kept.

Each record is an entry of its own, sent in chunks if it is larger than the broker takes, and
written when `Producers.send` returns.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import _pulsar

from consumer_sdk.adapters.pulsar.calls import call, close_client
from consumer_sdk.adapters.pulsar.connection import Connection
from consumer_sdk.adapters.pulsar.faults import BusyError, translate
from consumer_sdk.errors import AdapterError, ConsumerClosedError, ConsumerSdkError

__all__ = ["Encryption", "Producers", "Writing"]

log = logging.getLogger(__name__)

MOST = 64
"""Producers that are kept while nobody uses them."""

CLOSED = "its writer is closed: make a new one"


@dataclass(frozen=True, slots=True, kw_only=True)
class Writing:
    """A record to be written.

    Attributes:
        key: None or empty for none, which is the same to Pulsar.
        properties: names and values.
        timestamp: the event time, milliseconds since the epoch; None for none.
        delay: seconds until consumers of shared subscriptions get it.
    """

    key: str | None
    value: bytes | None
    properties: Mapping[str, str]
    timestamp: int | None = None
    delay: float = 0.0


@dataclass(frozen=True, slots=True)
class Encryption:
    """With which keys records are encrypted.

    Attributes:
        reader: a ``pulsar.CryptoKeyReader``.
        keys: their names.
    """

    reader: Any
    keys: Sequence[str]


@dataclass(slots=True)
class _Use:
    """A producer, or the making of it, and how many send with it."""

    making: asyncio.Task[Any]
    senders: int = 0

    @property
    def has_failed(self) -> bool:
        done = self.making.done()
        return done and (self.making.cancelled() or self.making.exception() is not None)


class Producers:
    """Producers by topic, made when they are first needed; the client too.

    Args:
        subscription: made on each topic before the first record, so that the broker keeps what is
            written there; None: whoever administers the topics has seen to that.

    Concurrency: many tasks may send at once.
    """

    def __init__(
        self,
        connection: Connection,
        *,
        subscription: str | None = None,
        encryption: Encryption | None = None,
    ) -> None:
        self._connection = connection
        self._subscription = subscription
        self._encryption = encryption
        self._client: Any = None
        self._uses: dict[str, _Use] = {}  # the one used last is the last
        self._is_closed = False

    async def send(self, topic: str, writing: Writing) -> None:
        """Writes a record; returns when the broker has stored it.

        Raises:
            ConfigurationError: there is no such topic, and the broker makes none.
            AdapterError: the broker refuses it, or does not answer.
            ConsumerClosedError: all this is closed.
        """
        use = self._use(topic)
        use.senders += 1
        try:
            await self._send(topic, use, writing)
        finally:
            use.senders -= 1
            self._trim()

    async def _send(self, topic: str, use: _Use, writing: Writing) -> None:
        producer = await self._made(use)
        message = _message(writing)
        try:
            await call(lambda done: producer.send_async(message, done), f"writing to {topic}")
        except Exception as error:
            if not producer.is_connected():
                self._forget(topic, use)  # the next one may find what this one does not
            if isinstance(error, ConsumerSdkError):
                raise
            raise translate(error, f"writing to {topic}") from error

    async def aclose(self) -> None:
        """Closes all, and the client. Idempotent, and bounded by the operation timeout."""
        self._is_closed = True
        uses, self._uses = self._uses, {}
        client, self._client = self._client, None
        await asyncio.gather(*(self._close(use.making) for use in uses.values()))
        if client is not None:
            await self._quietly(close_client(client), "closing the client")

    # -- one producer -------------------------------------------------------------------------

    def _use(self, topic: str) -> _Use:
        if self._is_closed:
            raise ConsumerClosedError(CLOSED)
        use = self._uses.pop(topic, None)
        if use is None or use.has_failed:
            making = asyncio.create_task(self._make(topic), name=f"pulsar producer {topic}")
            use = _Use(making)
        self._uses[topic] = use
        return use

    async def _made(self, use: _Use) -> Any:
        try:
            return await asyncio.shield(use.making)  # others wait for it too
        except asyncio.CancelledError:
            sender = asyncio.current_task()
            if use.making.cancelled() and sender is not None and not sender.cancelling():
                raise ConsumerClosedError(CLOSED) from None
            raise

    def _trim(self) -> None:
        """Closes what has not been used for longest, down to `MOST`."""
        idle = [t for t, use in self._uses.items() if not use.senders and use.making.done()]
        for topic in idle[: max(len(self._uses) - MOST, 0)]:
            use = self._uses.pop(topic)
            if not use.has_failed:
                use.making.result().close_async(lambda _: None)

    async def _make(self, topic: str) -> Any:
        if self._client is None:
            self._client = self._connection.make_client()
        client = self._client
        if self._subscription is not None:
            await self._keep(client, topic, self._subscription)
        return await call(
            lambda done: client.create_producer_async(topic, self._configuration(), done),
            f"opening {topic} to write to it",
            late=lambda producer: producer.close_async(lambda _: None),
        )

    async def _keep(self, client: Any, topic: str, subscription: str) -> None:
        """Makes a subscription; a consumer that is closed at once is the client's only way."""
        configuration = _pulsar.ConsumerConfiguration()
        configuration.consumer_type(_pulsar.ConsumerType.Shared)
        configuration.subscription_initial_position(_pulsar.InitialPosition.Earliest)
        configuration.receiver_queue_size(1)
        try:
            consumer = await call(
                lambda done: client.subscribe_async(topic, subscription, configuration, done),
                f"subscribing to {topic} as {subscription!r}",
                late=lambda consumer: consumer.close_async(lambda _: None),
            )
        except BusyError:  # somebody reads it as another type, and so it is there
            return
        await call(consumer.close_async, f"closing the consumer of {topic}")

    def _configuration(self) -> Any:
        made = _pulsar.ProducerConfiguration()
        made.batching_enabled(False)
        made.chunking_enabled(True)
        made.max_pending_messages(0)  # senders wait for each record anyway
        made.send_timeout_millis(round(self._connection.operation_timeout * 1000))
        if self._encryption is not None:
            made.crypto_key_reader(self._encryption.reader.cryptoKeyReader)
            for key in self._encryption.keys:
                made.encryption_key(key)
        return made

    def _forget(self, topic: str, use: _Use) -> None:
        if self._uses.get(topic) is use:
            del self._uses[topic]
            use.making.result().close_async(lambda _: None)

    async def _close(self, making: asyncio.Task[Any]) -> None:
        making.cancel()
        found = (await asyncio.gather(making, return_exceptions=True))[0]
        if not isinstance(found, BaseException):
            await self._quietly(call(found.close_async, "closing it"), "closing a producer")

    async def _quietly(self, closing: Awaitable[Any], doing: str) -> None:
        try:
            async with asyncio.timeout(self._connection.operation_timeout):
                await closing
        except (AdapterError, TimeoutError) as error:
            log.warning("%s: %r", doing, error)


def _message(writing: Writing) -> Any:
    builder = _pulsar.MessageBuilder()
    if writing.value is None:
        builder.set_null_value()
    else:
        builder.content(writing.value)
    if writing.key:
        builder.partition_key(writing.key)
    if writing.timestamp is not None and writing.timestamp >= 0:
        builder.event_timestamp(writing.timestamp)
    for name, value in writing.properties.items():
        builder.property(name, value)
    if writing.delay > 0:
        builder.deliver_after(timedelta(seconds=writing.delay))
    return builder.build()
