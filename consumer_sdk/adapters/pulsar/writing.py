"""Writes columns of records to Pulsar topics, in batches of the native client.

The client calls back for each record, in a thread of its own. One callback counts the records of a
whole `send`, and wakes the event loop once.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from consumer_sdk.adapters.pulsar import client_support as _support  # noqa: F401 - is it there?

# isort: split
import _pulsar

from consumer_sdk.adapters.opening import keep_trying
from consumer_sdk.adapters.pulsar.client.calls import CLOSE, call, close
from consumer_sdk.adapters.pulsar.client.connection import SCHEMES, Connection
from consumer_sdk.adapters.pulsar.client.faults import translate, translate_result
from consumer_sdk.adapters.pulsar.client.interpreter_exit import close_late, held, inside
from consumer_sdk.adapters.pulsar.client.outgoing import OutgoingRecord, make_message, properties_of
from consumer_sdk.adapters.pulsar.client.topics import full_name
from consumer_sdk.adapters.pulsar.options import read_url
from consumer_sdk.adapters.urls import split_url
from consumer_sdk.errors import (
    AdapterError,
    ConfigurationError,
    ConsumerSdkError,
    TransientAdapterError,
)
from consumer_sdk.options import SECONDS, OptionType, check_options, choice, kinds_of, make_options
from consumer_sdk.record_writes import Outgoing, RecordWriter

__all__ = ["PulsarWriter"]

log = logging.getLogger(__name__)

FORM = "write pulsar://host:port/topic?option=value"
COMPRESSIONS = {
    "none": _pulsar.CompressionType.NONE,
    "lz4": _pulsar.CompressionType.LZ4,
    "zlib": _pulsar.CompressionType.ZLib,
    "zstd": _pulsar.CompressionType.ZSTD,
    "snappy": _pulsar.CompressionType.SNAPPY,
}
OWN: Mapping[str, OptionType] = {
    "batching": choice("default", "key", "none"),
    "compression": choice(*COMPRESSIONS),
    "delivery_timeout": SECONDS,
}
"""`PulsarWriter`'s own options."""
BATCH_RECORDS = 1000
BATCH_BYTES = 128 * 1024
BATCH_DELAY = 5
"""Milliseconds for which the client collects a batch."""


class PulsarWriter(RecordWriter):
    """Writes to Pulsar; a key chooses its partition as with the C++ and Python clients.

    Args:
        service_url: ``pulsar://host:6650`` or ``pulsar+ssl://host:6651``.
        batching: ``"default"``; ``"key"``: all records of a batch have one key, which
            ``key_shared`` subscriptions need; ``"none"``: each record is sent alone, in chunks if
            it is larger than the broker accepts.
        compression: ``"none"``, ``"lz4"``, ``"zlib"``, ``"zstd"`` or ``"snappy"``.
        delivery_timeout: seconds after which sending a record is an error.
        connection: any other option of `consumer_sdk.adapters.pulsar.client.connection.Connection`.

    A broker that creates topics automatically creates a missing one.

    Raises:
        ConfigurationError: an option is unknown or cannot work.
    """

    __slots__ = (
        "_batching",
        "_client",
        "_compression",
        "_connection",
        "_delivery_timeout",
        "_failure",
        "_partitions",
        "_producers",
        "_sent",
        "_unacked",
    )

    def __init__(
        self,
        *,
        service_url: str,
        batching: str = "default",
        compression: str = "none",
        delivery_timeout: float = 120.0,
        **connection: Any,
    ) -> None:
        check_options(locals(), OWN)
        self._connection = make_options(Connection, {"service_url": service_url, **connection})
        self._batching = batching
        self._compression = COMPRESSIONS[compression]
        self._delivery_timeout = delivery_timeout
        self._client: Any = None
        self._partitions: dict[str, int] = {}  # topic → how many; 0: it is not partitioned
        self._producers: dict[str, Any] = {}
        self._unacked: list[asyncio.Future[None]] = []
        self._failure: ConsumerSdkError | None = None
        self._sent = 0

    def __repr__(self) -> str:
        return f"PulsarWriter({self._connection.service_url!r})"

    @classmethod
    def from_url(cls, url: str) -> PulsarWriter:
        """The writer for a URL. The URL's topic is for the caller; the writer ignores it.

        Raises:
            ConfigurationError: the URL is malformed, or an option is unknown or cannot work.
        """
        parts, texts = split_url(url, SCHEMES, FORM)
        _, options = read_url(parts, texts, kinds_of(Connection) | {**OWN}, FORM)
        return cls(**options)

    async def open(self) -> None:
        """Makes the client, which connects when a topic is prepared."""
        self._client = self._connection.make_client()

    async def prepare(self, topic: str) -> None:
        """Looks the topic up, and makes a producer for it; the broker may refuse that."""
        name = full_name(topic)

        async def found(_left: float) -> int:
            names = await call(
                lambda done: self._client.get_topic_partitions_async(name, done),
                f"looking up {name}",
            )
            return 0 if [*names] == [name] else len(names)

        self._partitions[name] = await keep_trying(found, self._connection.connect_timeout)
        await self._producer(name)

    def pack(self, records: Outgoing) -> dict[str, list[Any]]:
        """Makes messages, grouped by the topic or partition that they go to."""
        topic = full_name(records.topic)
        made: dict[str, list[Any]] = {}
        for place, record in zip(
            self._places(topic, records), _outgoing_records(records), strict=True
        ):
            made.setdefault(place, []).append(make_message(record))
        return made

    def _places(self, topic: str, records: Outgoing) -> Iterator[str]:
        count = self._partitions[topic]
        named: list[int | None] = [None] * len(records)
        if records.partitions is not None:
            named = records.partitions.to_pylist()
        for number in named:
            if number is not None and not 0 <= number < count:
                there = f"the partitions 0 to {count - 1}" if count else "no partitions"
                raise ConfigurationError(
                    f"partition {number}: topic {topic!r} has {there}; null lets the key choose"
                )
            yield topic if number is None else f"{topic}-partition-{number}"

    async def send(self, packed: dict[str, list[Any]]) -> None:
        """Hands messages to the client; waits until those of the previous call are stored."""
        if self._failure is not None:
            raise self._failure
        producers = {place: await self._producer(place) for place in packed}
        before = self._unacked
        self._unacked = [
            self._begin(producers[place], each, place) for place, each in packed.items()
        ]
        self._sent += sum(map(len, packed.values()))
        await self._acked(before)

    async def flush(self) -> int:
        """Waits until all are stored; returns how many were sent since the last flush."""
        await self._acked(self._unacked)
        if self._failure is not None:
            raise self._failure
        self._unacked = []
        sent, self._sent = self._sent, 0
        return sent

    async def aclose(self) -> None:
        """Closes all producers, and the client."""
        producers, self._producers = self._producers, {}
        client, self._client = self._client, None
        quiet = partial(close, level=logging.DEBUG)  # `flush` has told of what was not written
        each = producers.items()
        await asyncio.gather(*(quiet(native, f"the producer of {place}") for place, native in each))
        if client is not None:
            await quiet(client, "the client")

    # -- the client ---------------------------------------------------------------------------

    async def _producer(self, place: str) -> Any:
        if place not in self._producers:
            self._producers[place] = await call(
                lambda done: self._client.create_producer_async(place, self._configuration(), done),
                f"opening {place} to write to it",
                late=close_late,
            )
        return self._producers[place]

    def _configuration(self) -> Any:
        made = _pulsar.ProducerConfiguration()
        made.compression_type(self._compression)
        made.max_pending_messages(0)  # `send` waits, and not in the client
        made.send_timeout_millis(round(self._delivery_timeout * 1000))
        made.partitions_routing_mode(_pulsar.PartitionsRoutingMode.RoundRobinDistribution)
        is_batching = self._batching != "none"
        made.batching_enabled(is_batching)
        made.chunking_enabled(not is_batching)
        if is_batching:
            made.batching_max_messages(BATCH_RECORDS)
            made.batching_max_allowed_size_in_bytes(BATCH_BYTES)
            made.batching_max_publish_delay_ms(BATCH_DELAY)
        if self._batching == "key":
            made.batching_type(_pulsar.BatchingType.KeyBased)
        return made

    def _begin(self, producer: Any, messages: Sequence[Any], place: str) -> asyncio.Future[None]:
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        counter = held(_counter(future, len(messages), f"writing to {place}"))
        for message in messages:
            with inside:
                try:
                    producer.send_async(message, counter)
                except Exception as error:
                    raise translate(error, f"writing to {place}") from error
        return future

    async def _acked(self, futures: Sequence[asyncio.Future[None]]) -> None:
        """Waits for these records. A failure is kept for the next calls, which would not see it otherwise."""
        try:
            async with asyncio.timeout(self._delivery_timeout + CLOSE):
                await asyncio.gather(*futures)
        except TimeoutError as error:
            self._failure = TransientAdapterError(
                f"{self!r}: the broker did not acknowledge what was sent "
                f"for {self._delivery_timeout:.0f} s"
            )
            raise self._failure from error
        except ConsumerSdkError as error:
            self._failure = error
            raise


def _counter(future: asyncio.Future[None], count: int, doing: str) -> Any:
    """A callback that settles a future after ``count`` calls, or after one with a failure."""
    loop, results = future.get_loop(), list[Any]()

    def settle() -> None:
        failures = [each for each in results if each != _pulsar.Result.Ok]
        if future.done():
            return
        if failures:
            future.set_exception(_refused(failures[0], doing))
        else:
            future.set_result(None)

    def called_back(result: Any, _id: Any = None) -> None:
        results.append(result)
        if len(results) >= count or result != _pulsar.Result.Ok:
            try:
                loop.call_soon_threadsafe(settle)
            except RuntimeError:  # the loop was closed
                return

    return called_back


def _refused(result: Any, doing: str) -> ConsumerSdkError:
    found = translate_result(result, doing)
    if result == _pulsar.Result.MessageTooBig:
        advice = (
            "the broker takes less (maxMessageSize): batching=none sends large records in chunks"
        )
        return AdapterError(f"{found}: {advice}")
    return found


def _outgoing_records(records: Outgoing) -> Iterator[OutgoingRecord]:
    nothing: list[Any] = [None] * len(records)
    keys = nothing if records.keys is None else records.keys.to_pylist()
    headers = [()] * len(records) if records.headers is None else records.headers
    for key, value, each in zip(keys, records.values.to_pylist(), headers, strict=True):
        yield OutgoingRecord(key=key, value=value, properties=properties_of(each))
