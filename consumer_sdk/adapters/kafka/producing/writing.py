"""Writes columns of records to Kafka topics, in record batches of our own.

aiokafka's ``send`` makes a future for each record, which takes ten times as long as encoding the
record. So the writer sorts records by partition and encodes columns as batches (`batches`).
aiokafka sends each batch as a whole.

Order: each partition has a lane. A lane sends a batch when the broker has acknowledged the one
before it. Lanes hold the batches of the last two calls of `KafkaWriter.send`; a third call waits.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from aiokafka import AIOKafkaProducer
from aiokafka.errors import KafkaTimeoutError, MessageSizeTooLargeError

from consumer_sdk.adapters.kafka.client.faults import code_name, translate
from consumer_sdk.adapters.kafka.client.options import (
    check_client_options,
    client_kinds,
    connection_options,
    read_servers,
    read_url,
)
from consumer_sdk.adapters.kafka.client.producers import start_producer, stop_producer
from consumer_sdk.adapters.kafka.client.topics import Topic, await_topics
from consumer_sdk.adapters.kafka.producing.batches import BatchOfBytes, record_batches
from consumer_sdk.adapters.kafka.producing.partitioning import lengths_of, partitions_of
from consumer_sdk.adapters.opening import keep_trying
from consumer_sdk.adapters.urls import split_url
from consumer_sdk.errors import (
    AdapterError,
    ConfigurationError,
    ConsumerSdkError,
    TransientAdapterError,
)
from consumer_sdk.options import SECONDS, OptionType, check_options
from consumer_sdk.record_writes import Outgoing, RecordWriter
from consumer_sdk.records import Headers

__all__ = ["KafkaWriter"]

FORM = "write kafka://host:port[,host:port]/topic?option=value"
OURS = {
    "transactional_id": "records are written at least once, without a transaction",
    "key_serializer": "keys are bytes",
    "value_serializer": "values are bytes",
    "partitioner": "keys choose as Java's producer has it, or a column of partitions",
    "linger_ms": "batches are made of columns, and nothing waits for more",
}
"""Client options that are set here → why."""
OWN: Mapping[str, OptionType] = {"connect_timeout": SECONDS, "delivery_timeout": SECONDS}
"""`KafkaWriter`'s own options."""
DEFAULTS = {"max_batch_size": 128 * 1024, "max_request_size": 1024 * 1024}
"""Other than the client's; ``max_request_size`` is the client's and Java's."""
OVERHEAD = 61 + 21
"""Bytes of a record beside its key, value and headers: the batch's head, and numbers."""
HEADER_OVERHEAD = 10


@dataclass(frozen=True, slots=True)
class Batch:
    """A batch for one partition."""

    topic: str
    partition: int
    builder: BatchOfBytes


class KafkaWriter(RecordWriter):
    """Writes to Kafka; acknowledged by all replicas unless ``acks`` says otherwise.

    Args:
        bootstrap_servers: ``"host:port"``, several with commas or in a sequence.
        connect_timeout: seconds to wait for the servers, which may be restarting when it is opened.
        delivery_timeout: seconds for which the writer tries to send a batch. Then it raises an
            error.
        options: any other option of ``AIOKafkaProducer``. Idempotence is on, unless ``acks``
            forbids it: a batch that is sent again is stored once.

    Raises:
        ConfigurationError: an option is unknown or cannot work.
    """

    __slots__ = (
        "_connect_timeout",
        "_delivery_timeout",
        "_failure",
        "_first",
        "_lanes",
        "_options",
        "_producer",
        "_sent",
        "_topics",
        "_unacked",
    )

    def __init__(
        self,
        *,
        bootstrap_servers: str | Sequence[str],
        connect_timeout: float = 30.0,
        delivery_timeout: float = 120.0,
        **options: Any,
    ) -> None:
        check_options(locals(), OWN)
        check_client_options(options, AIOKafkaProducer.__init__, OURS, OWN)
        self._connect_timeout = connect_timeout
        self._delivery_timeout = delivery_timeout
        is_by_all = options.get("acks", "all") in ("all", -1)
        if options.get("enable_idempotence") and not is_by_all:
            raise ConfigurationError(
                "enable_idempotence=True needs acks='all': give one of the two"
            )
        self._options = {
            "enable_idempotence": is_by_all,
            **DEFAULTS,
            **connection_options(options),
            "bootstrap_servers": read_servers(bootstrap_servers),
        }
        self._producer: Any = None
        self._topics: dict[str, Topic] = {}
        self._lanes: dict[tuple[str, int], asyncio.Task[None]] = {}
        self._unacked: list[asyncio.Task[None]] = []  # of the last call of `send`
        self._failure: ConsumerSdkError | None = None
        self._sent = 0
        self._first = os.getpid()  # small tasks do not all write to partition 0

    def __repr__(self) -> str:
        return f"KafkaWriter(bootstrap_servers={','.join(self._options['bootstrap_servers'])!r})"

    @classmethod
    def from_url(cls, url: str) -> KafkaWriter:
        """The writer for a URL. The URL's topic is for the caller; the writer ignores it.

        Raises:
            ConfigurationError: the URL is malformed, or an option is unknown or cannot work.
        """
        parts, texts = split_url(url, {"kafka"}, FORM)
        _, options = read_url(
            parts, texts, {**client_kinds(AIOKafkaProducer.__init__), **OWN}, FORM
        )
        return cls(**options)

    async def open(self) -> None:
        """Connects, for `connect_timeout` seconds."""
        self._producer = await keep_trying(self._start, self._connect_timeout)

    async def _start(self, seconds: float) -> Any:
        try:
            async with asyncio.timeout(max(seconds, 1.0)):
                return await start_producer(seconds, **self._options)
        except TimeoutError as error:
            raise TransientAdapterError(
                f"{self._options['bootstrap_servers']}: no producer could be started in {seconds:.0f} s"
            ) from error

    async def prepare(self, topic: str) -> None:
        """Looks the topic up at the broker, for `connect_timeout` seconds at most; never creates it."""
        self._topics[topic] = await keep_trying(
            lambda _left: self._described(topic), self._connect_timeout
        )

    async def _described(self, topic: str) -> Topic:
        found = (await await_topics(self._producer.client, [topic]))[topic]
        if found.is_forbidden:
            raise AdapterError(
                f"topic {topic!r}: this principal may not see it: grant it Describe and Write (ACLs)"
            )
        if found.is_absent:
            raise ConfigurationError(
                f"topic {topic!r} does not exist: create it, or correct its name"
            )
        if found.error or not found.partitions:
            raise TransientAdapterError(f"topic {topic!r} is not ready: {code_name(found.error)}")
        return found

    def pack(self, records: Outgoing) -> list[Batch]:
        """Encodes records as batches, in order for each partition."""
        self._check_sizes(records)
        count = len(self._topics[records.topic].partitions)
        partitions = partitions_of(records, count, self._first)
        self._first += 1
        made = record_batches(
            records,
            partitions,
            limit=self._options["max_batch_size"],
            time=int(time.time() * 1000),
            compression=self._options.get("compression_type"),
        )
        return [Batch(records.topic, partition, each) for partition, each in made]

    def _check_sizes(self, records: Outgoing) -> None:
        sizes = lengths_of(records.values) + OVERHEAD
        if records.keys is not None:
            sizes = sizes + lengths_of(records.keys)
        if records.headers is not None:
            sizes = sizes + list(map(_header_bytes, records.headers))
        limit = self._options["max_request_size"]
        if len(sizes) and sizes.max() > limit:
            raise AdapterError(
                f"a record for topic {records.topic!r} has {sizes.max():,} bytes, and "
                f"max.request.size allows {limit:,}: raise it, and max.message.bytes of the topic"
            )

    async def send(self, packed: list[Batch]) -> None:
        """Puts batches into the lanes of their partitions; waits until those of the previous call are acknowledged."""
        if self._failure is not None:
            raise self._failure
        before = self._unacked
        by_lane: dict[tuple[str, int], list[Batch]] = {}
        for batch in packed:
            by_lane.setdefault((batch.topic, batch.partition), []).append(batch)
            self._sent += batch.builder.record_count()
        self._unacked = [self._lane(place, batches) for place, batches in by_lane.items()]
        await self._acked(before)

    async def flush(self) -> int:
        """Waits until all batches are acknowledged."""
        await self._acked([*self._lanes.values()])
        if self._failure is not None:
            raise self._failure
        self._lanes, self._unacked = {}, []
        sent, self._sent = self._sent, 0
        return sent

    async def aclose(self) -> None:
        """Drops batches that are not acknowledged, and closes the producer."""
        lanes, self._lanes = self._lanes, {}
        for lane in lanes.values():
            lane.cancel()
        await asyncio.gather(*lanes.values(), return_exceptions=True)
        producer, self._producer = self._producer, None
        if producer is not None:
            await stop_producer(producer)

    # -- lanes --------------------------------------------------------------------------------

    def _lane(self, place: tuple[str, int], batches: list[Batch]) -> asyncio.Task[None]:
        made = asyncio.create_task(self._write(self._lanes.get(place), batches))
        self._lanes[place] = made
        return made

    async def _write(self, before: asyncio.Task[None] | None, batches: list[Batch]) -> None:
        if before is not None:
            await before
        await asyncio.gather(*[await self._queued(batch) for batch in batches])

    async def _queued(self, batch: Batch) -> asyncio.Future[Any]:
        """Hands a batch to aiokafka, and returns the future of its acknowledgement. `_acked` bounds the wait for it."""
        place = {"topic": batch.topic, "partition": batch.partition}
        while True:
            # The client gives up when the batch before has waited for as long as one request may take.
            with suppress(KafkaTimeoutError):
                found: asyncio.Future[Any] = await self._producer.send_batch(batch.builder, **place)
                return found

    async def _acked(self, lanes: Sequence[asyncio.Task[None]]) -> None:
        """Returns when these lanes are done. It keeps a failure, because the other lanes do not know of it."""
        try:
            async with asyncio.timeout(self._delivery_timeout):
                await asyncio.gather(*lanes)
        except TimeoutError as error:
            self._failure = TransientAdapterError(
                f"{self!r}: the broker did not acknowledge what was sent "
                f"for {self._delivery_timeout:.0f} s"
            )
            raise self._failure from error
        except Exception as error:
            topics = ", ".join(sorted(self._topics))
            self._failure = _refused(error, f"writing to topic {topics}")
            raise self._failure from error


def _refused(error: Exception, doing: str) -> ConsumerSdkError:
    found = translate(error, doing)
    if isinstance(error, MessageSizeTooLargeError):
        return AdapterError(
            f"{found}, or lower the batch size (kafka.batch.size, max_batch_size), which may exceed it too"
        )
    return found


def _header_bytes(headers: Headers) -> int:
    return sum(len(name) + len(value or b"") + HEADER_OVERHEAD for name, value in headers)
