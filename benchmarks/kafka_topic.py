"""The topic that every Kafka contestant reads."""

from __future__ import annotations

import asyncio
import logging
import random
import time
import uuid
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from itertools import cycle, islice
from typing import Literal

from aiokafka import AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.producer.message_accumulator import BatchBuilder

from consumer_sdk.testing.servers import ExternalKafka, KafkaServer, external_address

__all__ = ["KEYS", "PARTITIONS", "delete", "fill", "filled"]

PARTITIONS = 8
KEYS = 5_000
_BATCH_BYTES = 128 * 1024
_IN_FLIGHT = 64


@asynccontextmanager
async def filled(
    records: int, say: Callable[[str], None], *others: str
) -> AsyncIterator[tuple[str, str]]:
    """A new topic with so many records, and where it is: in a Kafka of ours, or the one that runs already.

    Args:
        others: what is behind the topic's name in those of empty topics beside it.
    """
    logging.getLogger("aiokafka").setLevel(logging.CRITICAL)  # a new topic's sends are retried
    address = external_address("CONSUMER_SDK_KAFKA")
    server = ExternalKafka(address) if address else KafkaServer(quick=False)
    topic = f"benchmark-{uuid.uuid4().hex[:8]}"
    names = [topic, *(topic + other for other in others)]
    async with server:
        servers = server.bootstrap_servers
        for name in names:
            await server.create_topic(name, partitions=PARTITIONS)
        try:
            say(f"writing {records:,} records of 100 bytes")
            await fill(servers, topic, records)
            yield servers, topic
        finally:
            await delete(servers, *names)


async def delete(servers: str, *topics: str) -> None:
    """Remove the topics: the server may be somebody's own."""
    admin = AIOKafkaAdminClient(bootstrap_servers=servers)
    try:
        await admin.start()
        await admin.delete_topics(list(topics))
    finally:
        await admin.close()


async def fill(
    servers: str,
    topic: str,
    records: int,
    *,
    spread: int = 0,
    partitions: int = PARTITIONS,
    values: list[bytes] | None = None,
    compression: Literal["gzip", "zstd"] | None = None,
) -> None:
    """Write ``records`` values of 100 bytes under 5 000 keys in random order, always the same.

    Batches are built by hand: a send per record would take longer than the benchmark.

    Args:
        servers: where Kafka listens.
        topic: what to write to.
        records: how many; an even number.
        partitions: of the topic.
        spread: by how many bytes values are shorter or longer at most; 100 they are in the mean.
        values: instead, taken in turns.
        compression: of the producer.
    """
    producer = AIOKafkaProducer(
        bootstrap_servers=servers, max_batch_size=_BATCH_BYTES, compression_type=compression
    )
    async with producer:
        await _Writer(producer, topic, values or _values(spread), partitions).write(records)


def _values(spread: int) -> list[bytes]:
    """Taken in turns: each one's difference is made up for by the next."""
    dice = random.Random(100)
    differences = [dice.randint(0, spread) for _ in range(1_000)]
    return [b"v" * (100 + sign * by) for by in differences for sign in (1, -1)]


class _Writer:
    def __init__(
        self, producer: AIOKafkaProducer, topic: str, values: list[bytes], partitions: int
    ) -> None:
        self._producer = producer
        self._values = values
        self._topic = topic
        self._batches = [producer.create_batch() for _ in range(partitions)]
        self._sent: list[asyncio.Future[object]] = []

    async def write(self, records: int) -> None:
        dice = random.Random(5_000)
        keys = [b"key-%05d" % number for number in range(KEYS)]
        now = int(time.time() * 1000)
        for value in islice(cycle(self._values), records):
            key = int(dice.random() * KEYS)
            partition = key % len(self._batches)
            while self._append(self._batches[partition], keys[key], value, now) is None:
                await self._send(partition)
        for partition in range(len(self._batches)):
            await self._send(partition)
        await asyncio.gather(*self._sent)

    @staticmethod
    def _append(batch: BatchBuilder, key: bytes, value: bytes, now: int) -> object:
        return batch.append(key=key, value=value, timestamp=now)

    async def _send(self, partition: int) -> None:
        batch, self._batches[partition] = self._batches[partition], self._producer.create_batch()
        batch.close()
        self._sent.append(await self._producer.send_batch(batch, self._topic, partition=partition))
        if len(self._sent) >= _IN_FLIGHT:
            await asyncio.gather(*self._sent)
            self._sent.clear()
