"""Produces the flights to a Kafka topic, about 100 000 a second, and reports its progress.

python -m examples.flights.produce --kafka 127.0.0.1:9092 --topic flights
"""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Iterable

from aiokafka import AIOKafkaProducer
from aiokafka.partitioner import murmur2

from consumer_sdk.testing.servers import ExternalKafka
from examples.flights.children import report
from examples.flights.data import ROWS, encoded_flights

PARTITIONS = 4
REPORT_EVERY = 5_000  # flights


class Batches:
    """Fills one batch per partition, which takes half the time of a ``send`` per record."""

    def __init__(self, producer: AIOKafkaProducer, topic: str) -> None:
        self._producer = producer
        self._topic = topic
        self._open = [producer.create_batch() for _ in range(PARTITIONS)]
        self._sent: list[asyncio.Future[object]] = []

    async def add(self, partition: int, key: bytes | None, value: bytes) -> None:
        """Appends a record, and sends the batch if the record no longer fits."""
        if self._open[partition].append(key=key, value=value, timestamp=None) is None:
            await self._send(partition)
            self._open[partition].append(key=key, value=value, timestamp=None)

    async def flush(self) -> None:
        """Returns when the broker has every record."""
        for partition in range(PARTITIONS):
            await self._send(partition)
        await asyncio.gather(*self._sent)

    async def _send(self, partition: int) -> None:
        batch = self._open[partition]
        self._open[partition] = self._producer.create_batch()
        if batch.record_count():
            sent = await self._producer.send_batch(batch, self._topic, partition=partition)
            self._sent.append(sent)


def partition_of(key: bytes | None, number: int) -> int:
    """Kafka's own rule: the key decides; records without a key are spread evenly."""
    return (number if key is None else murmur2(key) & 0x7FFFFFFF) % PARTITIONS


async def produce(kafka: str, topic: str, flights: Iterable[tuple[bytes | None, bytes]]) -> int:
    """Sends ``flights`` to ``topic``; returns their number.

    The producer is idempotent: a batch that it sends again is stored once.
    """
    producer = AIOKafkaProducer(
        bootstrap_servers=kafka, enable_idempotence=True, linger_ms=5, max_batch_size=256 * 1024
    )
    count = 0
    async with producer:
        batches = Batches(producer, topic)
        for count, (key, value) in enumerate(flights, start=1):
            await batches.add(partition_of(key, count), key, value)
            if count % REPORT_EVERY == 0:
                report(produced=count)
        await batches.flush()
    report(produced=count)
    return count


def main() -> None:
    """Reads the command line and produces."""
    parser = argparse.ArgumentParser(prog="examples.flights.produce", description=__doc__)
    parser.add_argument("--kafka", metavar="HOST:PORT", required=True)
    parser.add_argument("--topic", required=True)
    parser.add_argument("--limit", type=int, default=ROWS, help="number of flights")
    parser.add_argument("--create", action="store_true", help="create the topic first")
    options = parser.parse_args()
    if options.create:
        asyncio.run(ExternalKafka(options.kafka).create_topic(options.topic, PARTITIONS))
    asyncio.run(produce(options.kafka, options.topic, encoded_flights(options.limit)))


if __name__ == "__main__":
    main()
