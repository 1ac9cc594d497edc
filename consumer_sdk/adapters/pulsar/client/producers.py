"""Native producers, one for each topic, to write records that have to be kept.

Each record is an entry of its own, sent in chunks if it is larger than the broker takes, and
written when `Producers.send` returns. A record with a key goes to the partition where Java's client
would put it: the native client has a hash of its own, and its Python extension no way to choose another.
"""

from __future__ import annotations

import asyncio
import logging
import math
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import partial, reduce
from typing import Any, NamedTuple, TypeAlias

import _pulsar

from consumer_sdk.adapters.pulsar.client.calls import call, close
from consumer_sdk.adapters.pulsar.client.connection import Connection
from consumer_sdk.adapters.pulsar.client.faults import BusyError, SchemaError, translate
from consumer_sdk.adapters.pulsar.client.interpreter_exit import close_late, close_soon, inside
from consumer_sdk.adapters.pulsar.client.sharing import CLOSED, Shared, has_failed, wait_for
from consumer_sdk.adapters.pulsar.details import PulsarDetails
from consumer_sdk.errors import (
    AdapterError,
    ConsumerClosedError,
    ConsumerSdkError,
    TransientAdapterError,
)

__all__ = ["Encryption", "Producers", "SchemaOf", "Writing", "make_message", "schema_of"]

log = logging.getLogger(__name__)

MOST = 64
"""Topics, each with the schema of what is written there, whose producers are kept while nobody uses them."""

LOOK = 60.0
"""Seconds between two looks how many partitions a topic has, as often as the client looks."""


class SchemaOf(NamedTuple):
    """The schema of a record that is written again.

    Attributes:
        topic: where it came from.
        version: the broker's number.
    """

    topic: str
    version: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Writing:
    """A record to be written.

    Attributes:
        key: None or empty for none, which is the same to Pulsar.
        properties: names and values.
        ordering_key: None or empty for none.
        schema: whose it is written with; None for none.
        timestamp: the event time, milliseconds since the epoch; None for none.
        delay: seconds until consumers of shared subscriptions get it.
    """

    key: bytes | None
    value: bytes | None
    properties: Mapping[str, str]
    ordering_key: bytes | None = None
    timestamp: int | None = None
    delay: float = 0.0
    schema: SchemaOf | None = None


class Place(NamedTuple):
    """What a producer writes to.

    Attributes:
        topic: as a whole.
        schema: of what is written there.
        partition: the topic of one; the whole topic, where the client may choose.
    """

    topic: str
    schema: SchemaOf | None
    partition: str

    @property
    def whole(self) -> Whole:
        """It and all other partitions."""
        return self.topic, self.schema


Whole: TypeAlias = tuple[str, SchemaOf | None]
"""A topic, and the schema of what is written there."""


def java_hash(key: bytes) -> int:
    """``key.hashCode() & Integer.MAX_VALUE`` of Java, of the text that its client makes of a key."""
    units = key.decode(errors="replace").encode("utf-16-le")
    each = struct.unpack(f"<{len(units) // 2}H", units)
    return reduce(lambda found, unit: (31 * found + unit) & 0xFFFFFFFF, each, 0) & 0x7FFFFFFF


def schema_of(stream: str, details: object) -> SchemaOf | None:
    """Of a record that came from a topic of Pulsar; None of any other."""
    if not isinstance(details, PulsarDetails) or details.schema_version is None:
        return None
    return SchemaOf(stream, details.schema_version)


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
    def is_idle(self) -> bool:
        return not self.senders and self.making.done()


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
        self._uses: dict[Whole, dict[Place, _Use]] = {}  # the one used last is the last
        self._kept: Shared[None] = Shared()
        self._looks: Shared[Sequence[str]] = Shared()
        self._partitions: dict[str, tuple[float, Sequence[str]]] = {}
        self._is_closed = False

    async def send(self, topic: str, writing: Writing, *, partition: str | None = None) -> None:
        """Writes a record; returns when the broker has stored it.

        Args:
            partition: the topic of one, for the record, if the topic has it; else by the record's key.

        Raises:
            ConfigurationError: there is no such topic, and the broker makes none.
            AdapterError: the broker refuses it, or does not answer.
            ConsumerClosedError: all this is closed.
        """
        place = Place(topic, writing.schema, await self._partition(topic, writing.key, partition))
        use = self._use(place)
        use.senders += 1
        try:
            await self._send(place, use, writing)
        finally:
            use.senders -= 1
            self._trim()

    async def _send(self, place: Place, use: _Use, writing: Writing) -> None:
        producer = await wait_for(use.making)
        message, doing = make_message(writing), f"writing to {place.partition}"
        try:
            await call(lambda done: producer.send_async(message, done), doing)
        except Exception as error:
            if not producer.is_connected():
                self._forget(place, use)  # the next one may find what this one does not
            if isinstance(error, ConsumerSdkError):
                raise
            raise translate(error, doing) from error

    async def aclose(self) -> None:
        """Closes all, and the client. Idempotent, and bounded."""
        self._is_closed = True
        uses, self._uses = self._uses, {}
        client, self._client = self._client, None
        each = [use.making for group in uses.values() for use in group.values()]
        await asyncio.gather(self._looks.aclose(), self._kept.aclose(), *map(self._close, each))
        if client is not None:
            await close(client, "the client")

    # -- partitions ---------------------------------------------------------------------------

    async def _partition(self, topic: str, key: bytes | None, wanted: str | None) -> str:
        if not key and wanted is None:
            return topic
        names = await self._names(topic)
        if wanted in names:
            return str(wanted)
        return names[java_hash(key) % len(names)] if key else topic

    async def _names(self, topic: str) -> Sequence[str]:
        now = asyncio.get_running_loop().time()
        looked, names = self._partitions.get(topic, (-math.inf, ()))
        if now - looked > LOOK:
            names = await self._looks.get(topic, partial(self._look, topic))
            self._looks.forget(topic)
        return names

    async def _look(self, topic: str) -> Sequence[str]:
        client = self._native()
        _, names = self._partitions.get(topic, (0.0, ()))
        try:
            names = await call(
                lambda done: client.get_topic_partitions_async(topic, done), f"looking up {topic}"
            )
        except AdapterError as error:
            if not names:
                raise
            log.warning("%s: it is taken to have %d partitions as before", error, len(names))
        self._partitions[topic] = asyncio.get_running_loop().time(), names
        return names

    def _native(self) -> Any:
        if self._is_closed:
            raise ConsumerClosedError(CLOSED)
        if self._client is None:
            self._client = self._connection.make_client()
        return self._client

    # -- one producer -------------------------------------------------------------------------

    def _use(self, place: Place) -> _Use:
        if self._is_closed:
            raise ConsumerClosedError(CLOSED)
        group = self._uses[place.whole] = self._uses.pop(place.whole, {})
        use = group.get(place)
        if use is None or has_failed(use.making):
            making = asyncio.create_task(self._make(place), name=f"pulsar producer {place.topic}")
            use = group[place] = _Use(making)
        return use

    def _trim(self) -> None:
        """Closes those of topics that have not been used for longest, down to `MOST`."""
        too_many = len(self._uses) - MOST
        if too_many <= 0:
            return
        idle = [w for w, group in self._uses.items() if all(use.is_idle for use in group.values())]
        for whole in idle[:too_many]:
            self._kept.forget(whole[0])
            for use in self._uses.pop(whole).values():
                if not has_failed(use.making):
                    close_soon(use.making.result())

    async def _make(self, place: Place) -> Any:
        client, (topic, schema, partition) = self._native(), place
        if self._subscription is not None:
            await self._kept.get(topic, partial(self._keep, client, topic, self._subscription))
        info = None if schema is None else await _schema_info(client, schema)
        try:
            return await self._open(client, partition, info)
        except SchemaError as error:
            if info is None:
                raise
            log.warning("%s: what comes from %s is written without one", error, schema)
            return await self._open(client, partition, None)

    async def _open(self, client: Any, topic: str, info: Any) -> Any:
        return await call(
            lambda done: client.create_producer_async(topic, self._configuration(info), done),
            f"opening {topic} to write to it",
            late=close_late,
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
                late=close_late,
            )
        except BusyError:  # somebody reads it as another type, and so it is there
            return
        # The subscription is there: a letter does not wait for another try.
        await close(consumer, f"the consumer of {topic}")

    def _configuration(self, info: Any) -> Any:
        made = _pulsar.ProducerConfiguration()
        if info is not None:
            made.schema(info)
        made.batching_enabled(False)
        made.chunking_enabled(True)
        made.max_pending_messages(0)  # senders wait for each record anyway
        made.send_timeout_millis(round(self._connection.operation_timeout * 1000))
        if self._encryption is not None:
            made.crypto_key_reader(self._encryption.reader.cryptoKeyReader)
            for key in self._encryption.keys:
                made.encryption_key(key)
        return made

    def _forget(self, place: Place, use: _Use) -> None:
        group = self._uses.get(place.whole, {})
        if group.get(place) is use:
            del group[place]
            self._kept.forget(place.topic)  # where the topic is made again, so is that
            close_soon(use.making.result())

    async def _close(self, making: asyncio.Task[Any]) -> None:
        making.cancel()
        found = (await asyncio.gather(making, return_exceptions=True))[0]
        if not isinstance(found, BaseException):
            await close(found, "a producer")


async def _schema_info(client: Any, schema: SchemaOf) -> Any:
    """The client's, or None: of pairs of key and value it would crash when it writes."""
    doing = f"asking for version {schema.version} of the schema of {schema.topic}"
    try:
        info = await asyncio.to_thread(_ask_schema, client, schema)
    except _pulsar.PulsarException as caught:
        error = translate(caught, doing)
        if isinstance(error, TransientAdapterError):
            raise error from caught
        log.warning("%s: what comes of it is written without a schema", error)
        return None
    return None if info.schema_type() == _pulsar.SchemaType.KEY_VALUE else info


def _ask_schema(client: Any, schema: SchemaOf) -> Any:
    with inside:
        return client.get_schema_info(*schema)


def make_message(writing: Writing) -> Any:
    """The native message of a record."""
    builder = _pulsar.MessageBuilder()
    if writing.value is None:
        builder.set_null_value()
    else:
        builder.content(writing.value)
    # Text and bytes are the same to the extension: bytes that are no UTF-8 stay as they are.
    if writing.key:
        builder.partition_key(writing.key)
    if writing.ordering_key:
        builder.ordering_key(writing.ordering_key)
    if writing.timestamp is not None and writing.timestamp >= 0:
        builder.event_timestamp(writing.timestamp)
    for name, value in writing.properties.items():
        builder.property(name, value)
    if writing.delay > 0:
        builder.deliver_after(timedelta(seconds=writing.delay))
    return builder.build()
