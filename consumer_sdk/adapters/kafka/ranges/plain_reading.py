"""Reads one range through the client's public consumer, where it lacks what is faster."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Sequence
from itertools import groupby
from operator import attrgetter
from typing import Any

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.errors import CorruptRecordException, KafkaError, OffsetOutOfRangeError

from consumer_sdk.adapters.doubts import REFETCHES, Doubts
from consumer_sdk.adapters.kafka.client.client import adopt, connect
from consumer_sdk.adapters.kafka.client.closing import stop_client
from consumer_sdk.adapters.kafka.client.faults import translate
from consumer_sdk.adapters.kafka.client.guarding import guard
from consumer_sdk.adapters.kafka.ranges.connection import Connection
from consumer_sdk.adapters.kafka.ranges.list_offsets import bounds
from consumer_sdk.adapters.kafka.ranges.options import RangeOptions
from consumer_sdk.adapters.kafka.ranges.record_decoder import Part
from consumer_sdk.errors import (
    PositionOutOfRangeError,
    TransientAdapterError,
    UnreadableRecordError,
)
from consumer_sdk.range_reads import Columns

__all__ = ["read_plainly"]

log = logging.getLogger(__name__)

RECORDS = 500
"""In one call of ``getmany``: with more, the objects outlive the collector's youngest generation,
and it is half as fast."""
WAIT_MS = 200
EMPTY_ANSWERS = 3
"""Answers in a row that bring nothing, after which there is nothing."""


async def read_plainly(
    connection: Connection,
    tp: TopicPartition,
    start: int,
    stop: int,
    *,
    with_headers: bool,
    max_bytes: int,
) -> AsyncIterator[Columns]:
    """See `RangeReader.read_range`."""
    if start >= stop:
        return
    where = f"fetching {tp.topic}[{tp.partition}]"

    async def find_leader() -> None:
        """The consumer would wait for a topic that is gone until it is made again."""
        await connection.refresh()
        connection.leader(tp)

    await connection.persist(where, find_leader)
    consumer = AIOKafkaConsumer(**connection.options.for_consumer())
    adopt(consumer._client)
    try:
        await connect(consumer._client, connection.options.connect_timeout)
        await consumer.start()
        guard(consumer._fetcher, connection.options.max_batch_bytes)
        consumer.assign([tp])
        consumer.seek(tp, start)
        reading = _Reading(consumer, tp, stop, connection.options)
        async for columns in reading.parts(max_bytes, with_headers=with_headers):
            yield columns
    except OffsetOutOfRangeError as error:
        first, end = await bounds(connection, tp)
        raise PositionOutOfRangeError(
            f"{where}: a position of a range from {start} to {stop} is not stored; the broker has "
            f"{first} to {end}"
        ) from error
    except (KafkaError, OSError, TimeoutError) as error:
        raise translate(error, where) from error
    finally:
        await stop_client(consumer)


class _Reading:
    """Goes on until the consumer's position is at the stop, or nothing comes any more."""

    def __init__(self, consumer: Any, tp: TopicPartition, stop: int, options: RangeOptions) -> None:
        self._consumer = consumer
        self._tp = tp
        self._stop = stop
        self._timeout = options.read_timeout
        self._doubts = Doubts()
        self._singly = 0  # records that are read one by one, as one of them could not be
        self._error: UnreadableRecordError | None = None
        is_committed = options.level == 1
        self._bounds = consumer.last_stable_offset if is_committed else consumer.highwater

    async def parts(self, max_bytes: int, *, with_headers: bool) -> AsyncIterator[Columns]:
        """Columns of about ``max_bytes``, each of one type of timestamp.

        The client's records are let go at once: kept, they cost the garbage collector more than
        all the rest.
        """
        part: Part | None = None
        while records := await self._next_or_none():
            for kind, some in groupby(records, attrgetter("timestamp_type")):
                if part and (part.timestamp_type != kind or part.size >= max_bytes):
                    yield part.columns()
                    part = None
                part = part or Part()
                found = list(some)
                part.add(found, with_headers=with_headers)
        if part:
            yield part.columns()
        if self._error is not None:
            raise self._error

    async def _next_or_none(self) -> list[Any]:
        """What cannot be read is an error behind what came before it."""
        try:
            return await self._next()
        except UnreadableRecordError as error:
            self._error = error
            return []

    async def _next(self) -> list[Any]:
        """The next records below the stop; none when there are none."""
        now = asyncio.get_running_loop().time
        deadline = now() + self._timeout
        answers: set[int | None] = set()
        while (position := await self._position()) < self._stop:
            kept = [record for record in await self._get() if record.offset < self._stop]
            if kept:
                return kept
            moved = await self._position()
            answers = set() if moved > position else answers | {self._answered()}
            if len(answers) > EMPTY_ANSWERS and self._bound() >= self._stop:
                break
            if now() >= deadline:
                raise TransientAdapterError(
                    f"waited in vain for what lies between {moved} and {self._stop} of "
                    f"{self._tp.topic}[{self._tp.partition}]"
                )
        return []

    async def _get(self) -> Sequence[Any]:
        """What cannot be read is fetched again, with what came before it one by one."""
        position = await self._position()
        most = 1 if self._singly else RECORDS
        try:
            found = await self._consumer.getmany(self._tp, timeout_ms=WAIT_MS, max_records=most)
        except (OSError, TimeoutError):
            raise  # translated with the rest
        except Exception as error:  # codecs raise whatever they like
            if isinstance(error, KafkaError) and not isinstance(error, CorruptRecordException):
                raise
            self._doubt(position, error)
            return ()
        records: Sequence[Any] = found.get(self._tp, ())
        self._singly = max(self._singly - len(records), 0)
        return records

    def _doubt(self, position: int, error: Exception) -> None:
        """Goes back to where nothing was yielded from: the client has dropped what it had read.

        Raises:
            UnreadableRecordError: it was fetched often enough.
        """
        if self._doubts.failed_at(position) > REFETCHES:
            raise UnreadableRecordError(
                f"fetching {self._tp.topic}[{self._tp.partition}]: offset {position} cannot be "
                f"read, also when fetched again ({type(error).__name__}: {error})"
            ) from error
        log.warning("%s at %d is fetched again: %r", self._tp, position, error)
        self._singly = RECORDS
        self._consumer.seek(self._tp, position)

    async def _position(self) -> int:
        return int(await self._consumer.position(self._tp))

    def _answered(self) -> int | None:
        """When the broker last answered a fetch."""
        at: int | None = self._consumer.last_poll_timestamp(self._tp)
        return at

    def _bound(self) -> int:
        """What lies before it may be read."""
        bound = self._bounds(self._tp)
        return -1 if bound is None else int(bound)
