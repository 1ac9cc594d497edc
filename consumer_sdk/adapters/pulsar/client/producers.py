"""Writes single records, such as dead letters, through one native producer for each topic.

Each record is an entry of its own, sent in chunks if it is larger than the broker takes, and stored when
`Producers.send` returns. A record with a key goes to the partition where Java's client would put it: the
native client has a hash of its own, and its Python extension cannot choose another. So each partition has a
native producer, and the hash is computed here.
"""

from __future__ import annotations

import asyncio
import logging
import math
import struct
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from functools import partial, reduce
from typing import Any, Generic, NamedTuple, TypeAlias, TypeVar

import _pulsar

from consumer_sdk.adapters.pulsar.client.calls import call, close
from consumer_sdk.adapters.pulsar.client.connection import Connection
from consumer_sdk.adapters.pulsar.client.faults import BusyError, SchemaError, translate
from consumer_sdk.adapters.pulsar.client.interpreter_exit import close_late, close_soon, inside
from consumer_sdk.adapters.pulsar.client.outgoing import OutgoingRecord, SchemaOf, make_message
from consumer_sdk.errors import (
    AdapterError,
    ConsumerClosedError,
    ConsumerSdkError,
    TransientAdapterError,
)

__all__ = ["Encryption", "Producers"]


log = logging.getLogger(__name__)

T = TypeVar("T")

CLOSED = "its writer is closed: make a new one"

MOST = 64
"""Topics, each with one schema, whose producers stay open while nobody uses them."""

LOOK = 60.0
"""Seconds after which a topic's partitions are looked up again; the client does it as often."""


class _Target(NamedTuple):
    """What a native producer writes to.

    Attributes:
        topic: the whole topic.
        schema: of the records; None for none.
        partition: the name of the partition's topic, or the whole topic where the client may choose.
    """

    topic: str
    schema: SchemaOf | None
    partition: str

    @property
    def whole_topic(self) -> _Topic:
        """The topic with all its partitions, and the schema."""
        return self.topic, self.schema


_Topic: TypeAlias = tuple[str, SchemaOf | None]
"""A topic, and the schema of its records."""


@dataclass(frozen=True, slots=True)
class Encryption:
    """The keys that records are encrypted with.

    Attributes:
        reader: a ``pulsar.CryptoKeyReader``.
        keys: their names.
    """

    reader: Any
    keys: Sequence[str]


@dataclass(slots=True)
class _Use:
    """A producer that is open or being made, and how many tasks send with it."""

    making: asyncio.Task[Any]
    senders: int = 0

    @property
    def is_idle(self) -> bool:
        return not self.senders and self.making.done()


class Producers:
    """Native producers by topic. Each is made when it is first needed, and so is the client.

    Args:
        subscription: made on each topic before the first record, so that the broker keeps the
            records. None: each topic has a subscription already, or retention.

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
        self._uses: dict[_Topic, dict[_Target, _Use]] = {}  # the one used last is the last
        self._kept: _Shared[None] = _Shared()
        self._looks: _Shared[Sequence[str]] = _Shared()
        self._partitions: dict[str, tuple[float, Sequence[str]]] = {}
        self._is_closed = False

    async def send(
        self, topic: str, record: OutgoingRecord, *, partition: str | None = None
    ) -> None:
        """Writes a record; returns when the broker has stored it.

        Args:
            partition: the name of the partition's topic. Where the topic has no such partition, and for None,
                the record's key chooses.

        Raises:
            ConfigurationError: there is no such topic, and the broker creates none automatically.
            AdapterError: the broker refuses it, or does not answer.
            ConsumerClosedError: `aclose` was called.
        """
        target = _Target(topic, record.schema, await self._partition(topic, record.key, partition))
        use = self._use(target)
        use.senders += 1
        try:
            await self._send(target, use, record)
        finally:
            use.senders -= 1
            self._trim()

    async def _send(self, target: _Target, use: _Use, record: OutgoingRecord) -> None:
        producer = await _wait_for(use.making)
        message, doing = make_message(record), f"writing to {target.partition}"
        try:
            await call(lambda done: producer.send_async(message, done), doing)
        except Exception as error:
            if not producer.is_connected():
                self._forget(target, use)  # the next one may find what this one does not
            if isinstance(error, ConsumerSdkError):
                raise
            raise translate(error, doing) from error

    async def aclose(self) -> None:
        """Closes all producers, and the client. Idempotent, and bounded."""
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
        return names[_java_hash(key) % len(names)] if key else topic

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

    def _use(self, target: _Target) -> _Use:
        if self._is_closed:
            raise ConsumerClosedError(CLOSED)
        group = self._uses[target.whole_topic] = self._uses.pop(target.whole_topic, {})
        use = group.get(target)
        if use is None or _has_failed(use.making):
            making = asyncio.create_task(self._make(target), name=f"pulsar producer {target.topic}")
            use = group[target] = _Use(making)
        return use

    def _trim(self) -> None:
        """Closes the producers of the topics that were not used for longest, down to `MOST` topics."""
        too_many = len(self._uses) - MOST
        if too_many <= 0:
            return
        uses = self._uses.items()
        idle = [topic for topic, group in uses if all(use.is_idle for use in group.values())]
        for topic in idle[:too_many]:
            self._kept.forget(topic[0])
            for use in self._uses.pop(topic).values():
                if not _has_failed(use.making):
                    close_soon(use.making.result())

    async def _make(self, target: _Target) -> Any:
        client, (topic, schema, partition) = self._native(), target
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

    def _forget(self, target: _Target, use: _Use) -> None:
        group = self._uses.get(target.whole_topic, {})
        if group.get(target) is use:
            del group[target]
            self._kept.forget(target.topic)  # where the topic is made again, so is that
            close_soon(use.making.result())

    async def _close(self, making: asyncio.Task[Any]) -> None:
        making.cancel()
        found = (await asyncio.gather(making, return_exceptions=True))[0]
        if not isinstance(found, BaseException):
            await close(found, "a producer")


async def _schema_info(client: Any, schema: SchemaOf) -> Any:
    """The client's schema. None for pairs of key and value: the client would crash when it writes them."""
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


def _java_hash(key: bytes) -> int:
    """``key.hashCode() & Integer.MAX_VALUE`` of Java, of the text that its client makes of a key."""
    units = key.decode(errors="replace").encode("utf-16-le")
    each = struct.unpack(f"<{len(units) // 2}H", units)
    return reduce(lambda found, unit: (31 * found + unit) & 0xFFFFFFFF, each, 0) & 0x7FFFFFFF


# -- work that several tasks wait for, and that is done once --------------------------------


class _Shared(Generic[T]):
    """Results by name. Whoever asks first begins the work; work that has failed is begun anew."""

    def __init__(self) -> None:
        self._tasks: dict[str, asyncio.Task[T]] = {}

    async def get(self, name: str, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """The result, as soon as there is one.

        Raises:
            ConsumerClosedError: `aclose` was called meanwhile.
            Exception: what the work raised.

        Cancellation: the work goes on, for others.
        """
        task = self._tasks.get(name)
        if task is None or _has_failed(task):
            task = self._tasks[name] = asyncio.create_task(work(), name=f"pulsar {name}")
        return await _wait_for(task)

    def forget(self, name: str) -> None:
        """Drops a result, so that the next one who asks begins the work anew. Work that is under way goes on."""
        if name in self._tasks and self._tasks[name].done():
            del self._tasks[name]

    async def aclose(self) -> None:
        """Cancels what is under way."""
        tasks, self._tasks = self._tasks, {}
        for task in tasks.values():
            task.cancel()
        await asyncio.gather(*tasks.values(), return_exceptions=True)


def _has_failed(task: asyncio.Task[Any]) -> bool:
    """Whether a task has ended without a result."""
    return task.done() and (task.cancelled() or task.exception() is not None)


async def _wait_for(task: asyncio.Task[T]) -> T:
    """A task's result. The task is not cancelled with who waits, since others wait for it too.

    Raises:
        ConsumerClosedError: the task was cancelled, and who waits was not.
    """
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        waiter = asyncio.current_task()
        if task.cancelled() and waiter is not None and not waiter.cancelling():
            raise ConsumerClosedError(CLOSED) from None
        raise
