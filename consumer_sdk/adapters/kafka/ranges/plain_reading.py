"""Reads one range through the client's public consumer, where it lacks what is faster."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from itertools import groupby
from operator import attrgetter
from typing import Any

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.errors import KafkaError, OffsetOutOfRangeError

from consumer_sdk.adapters.kafka.client import connect, never_create_topics
from consumer_sdk.adapters.kafka.closing import stop_client
from consumer_sdk.adapters.kafka.faults import translate
from consumer_sdk.adapters.kafka.ranges.connection import Connection
from consumer_sdk.adapters.kafka.ranges.lookups import bounds
from consumer_sdk.errors import PositionOutOfRangeError, TransientAdapterError
from consumer_sdk.range_reads import Columns

__all__ = ["read_plainly"]

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
        connection.leader(tp)

    await connection.persist(where, find_leader)
    consumer = AIOKafkaConsumer(**connection.options.for_consumer())
    never_create_topics(consumer._client)
    try:
        await connect(consumer._client, connection.options.connect_timeout)
        await consumer.start()
        consumer.assign([tp])
        consumer.seek(tp, start)
        reading = _Reading(consumer, tp, stop, connection.options.read_timeout)
        async for records in reading.pieces(max_bytes):
            for columns in _columns(records, with_headers=with_headers):
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

    def __init__(self, consumer: Any, tp: TopicPartition, stop: int, timeout: float) -> None:
        self._consumer = consumer
        self._tp = tp
        self._stop = stop
        self._timeout = timeout

    async def pieces(self, max_bytes: int) -> AsyncIterator[list[Any]]:
        """Records of about ``max_bytes`` each time."""
        piece: list[Any] = []
        size = 0
        while await self._consumer.position(self._tp) < self._stop:
            records = await self._next()
            if not records:
                break
            piece += records
            size += sum(len(record.key or b"") + len(record.value or b"") for record in records)
            if size >= max_bytes:
                yield piece
                piece, size = [], 0
        if piece:
            yield piece

    async def _next(self) -> list[Any]:
        """The next records below the stop; none when there are none."""
        now = asyncio.get_running_loop().time
        deadline = now() + self._timeout
        answers: set[int | None] = set()
        while True:
            position = await self._consumer.position(self._tp)
            found = await self._consumer.getmany(self._tp, timeout_ms=WAIT_MS, max_records=RECORDS)
            records = found.get(self._tp, [])
            kept = [record for record in records if record.offset < self._stop]
            moved = await self._consumer.position(self._tp)
            if kept or moved >= self._stop:
                return kept
            answers = set() if moved > position else answers | {self._answered()}
            if len(answers) > EMPTY_ANSWERS and self._bound() >= self._stop:
                return []
            if now() >= deadline:
                raise TransientAdapterError(
                    f"waited in vain for what lies between {moved} and {self._stop} of "
                    f"{self._tp.topic}[{self._tp.partition}]"
                )

    def _answered(self) -> int | None:
        """When the broker last answered a fetch."""
        at: int | None = self._consumer.last_poll_timestamp(self._tp)
        return at

    def _bound(self) -> int:
        """What lies before it may be read; the same as the high watermark where all may."""
        bound = self._consumer.last_stable_offset(self._tp)
        return -1 if bound is None else int(bound)


def _columns(records: Sequence[Any], *, with_headers: bool) -> list[Columns]:
    """One for each stretch of one type of timestamp."""
    kinds = groupby(records, attrgetter("timestamp_type"))
    return [_made(list(some), kind, with_headers=with_headers) for kind, some in kinds]


def _made(records: Sequence[Any], kind: int | None, *, with_headers: bool) -> Columns:
    headers = [record.headers for record in records] if with_headers else []
    offsets: Sequence[int] = [record.offset for record in records]
    if offsets[-1] - offsets[0] + 1 == len(offsets):
        offsets = range(offsets[0], offsets[-1] + 1)
    return Columns(
        offsets,
        [record.key for record in records],
        [record.value for record in records],
        [record.timestamp for record in records],
        headers if any(headers) else None,
        kind,
    )
