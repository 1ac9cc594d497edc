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
from consumer_sdk.errors import AdapterError, ConsumerSdkError

__all__ = ["Encryption", "Producers", "Writing"]

log = logging.getLogger(__name__)

MOST = 64
"""Producers that are kept between two calls."""


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


class Producers:
    """Producers by topic, made when they are first needed; the client too.

    Args:
        subscription: made on each topic before the first record, so that the broker keeps what is
            written there; None: whoever administers the topics has seen to that.

    Concurrency: `send` may be called by many tasks at once; `trim` and `aclose` while nobody sends.
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
        self._producers: dict[str, asyncio.Task[Any]] = {}  # the one used last is the last

    async def send(self, topic: str, writing: Writing) -> None:
        """Writes a record; returns when the broker has stored it.

        Raises:
            ConfigurationError: there is no such topic, and the broker makes none.
            AdapterError: the broker refuses it, or does not answer.
        """
        producer = await self._producer(topic)
        message = _message(writing)
        try:
            await call(lambda done: producer.send_async(message, done), f"writing to {topic}")
        except Exception as error:
            if not producer.is_connected():
                self._forget(topic, producer)  # the next one may find what this one does not
            if isinstance(error, ConsumerSdkError):
                raise
            raise translate(error, f"writing to {topic}") from error

    async def trim(self) -> None:
        """Closes the producers that have not been used for longest, down to `MOST`."""
        while len(self._producers) > MOST:
            await self._close(self._producers.pop(next(iter(self._producers))))

    async def aclose(self) -> None:
        """Closes all, and the client. Idempotent, and bounded by the operation timeout."""
        producers, self._producers = self._producers, {}
        client, self._client = self._client, None
        await asyncio.gather(*map(self._close, producers.values()))
        if client is not None:
            await self._quietly(close_client(client), "closing the client")

    # -- one producer -------------------------------------------------------------------------

    async def _producer(self, topic: str) -> Any:
        task = self._producers.pop(topic, None)
        if task is None or (task.done() and (task.cancelled() or task.exception())):
            task = asyncio.create_task(self._make(topic), name=f"pulsar producer {topic}")
        self._producers[topic] = task
        return await asyncio.shield(task)  # others wait for it too

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

    def _forget(self, topic: str, producer: Any) -> None:
        task = self._producers.get(topic)
        if task is not None and task.done() and not task.exception() and task.result() is producer:
            del self._producers[topic]
            producer.close_async(lambda _: None)

    async def _close(self, task: asyncio.Task[Any]) -> None:
        task.cancel()
        found = (await asyncio.gather(task, return_exceptions=True))[0]
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
