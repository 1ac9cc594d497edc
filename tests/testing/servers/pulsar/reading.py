"""Reads from a Pulsar with its client."""

import asyncio
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pulsar

from consumer_sdk.testing.servers import PulsarEndpoint

_PATIENCE = 300_000  # milliseconds; a message comes much sooner
_END = b"the end"


async def values_of(server: PulsarEndpoint, topic: str) -> list[bytes]:
    """Return all that a topic holds."""
    return await asyncio.to_thread(_read, server.service_url, topic)


async def redelivered_after_part_of_a_batch(server: PulsarEndpoint) -> list[bytes]:
    """Ack four messages of a batch of five, and return what a new connection gets."""
    topic = f"batch-{uuid.uuid4()}"
    await server.create_subscription(topic, "readers")
    await server.produce(topic, [b"%d" % index for index in range(5)], batch=True)
    await asyncio.to_thread(_ack_some, server.service_url, topic, 4)
    await server.produce(topic, [_END])
    return await asyncio.to_thread(_until_the_end, server.service_url, topic)


def _read(url: str, topic: str) -> list[bytes]:
    values = []
    with _client(url) as client:
        reader = client.create_reader(topic, pulsar.MessageId.earliest)
        while reader.has_message_available():
            values.append(reader.read_next(_PATIENCE).data())
    return values


def _ack_some(url: str, topic: str, count: int) -> None:
    with _client(url) as client:
        consumer = _consumer(client, topic)
        for _ in range(count):
            consumer.acknowledge(consumer.receive(_PATIENCE))
        consumer.close()


def _until_the_end(url: str, topic: str) -> list[bytes]:
    with _client(url) as client:
        consumer = _consumer(client, topic)
        return list(iter(lambda: consumer.receive(_PATIENCE).data(), _END))


def _consumer(client: Any, topic: str) -> Any:
    return client.subscribe(
        topic, "readers", pulsar.ConsumerType.Shared, batch_index_ack_enabled=True
    )


@contextmanager
def _client(url: str) -> Iterator[Any]:
    client = pulsar.Client(url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
    try:
        yield client
    finally:
        client.close()
