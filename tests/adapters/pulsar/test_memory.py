"""What is received at a time, and ahead by all partitions, has a limit in bytes, on a real Pulsar."""

from __future__ import annotations

import asyncio
import uuid
from functools import partial
from typing import TYPE_CHECKING, Any

import pulsar
import pytest

from consumer_sdk import Consumer, Message, Ordering
from consumer_sdk.adapters.pulsar import PulsarAdapter
from consumer_sdk.adapters.pulsar.consumer.messages import Delivery
from consumer_sdk.adapters.pulsar.consumer.pump import Pump
from consumer_sdk.adapters.pulsar.options import BATCH_BYTES
from tests.adapters.pulsar.scripted import Owner

if TYPE_CHECKING:
    from consumer_sdk.testing.servers import PulsarServer

pytestmark = pytest.mark.pulsar

SIZES = [300_000] * 6 + [2_000_000] * 2 + [300_000] * 6


async def test_batch_of_large_messages_ends_at_its_limit_of_bytes(
    pulsar_server: PulsarServer,
) -> None:
    """Beside the message that was waited for; one above the limit comes all the same."""
    topic = f"persistent://public/default/memory-{uuid.uuid4().hex[:8]}"
    await pulsar_server.create_topic(topic)
    client = pulsar.Client(
        pulsar_server.service_url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error)
    )
    try:
        found = await _deliveries(client, topic, pulsar_server.service_url)
    finally:
        await asyncio.to_thread(client.close)
    assert [len(m.value or b"") for part in found for m in part.messages] == SIZES
    for part in found:
        later = [len(m.value or b"") for m in part.messages[1:]]
        assert sum(later) <= BATCH_BYTES or len(later) == 1


async def _deliveries(client: pulsar.Client, topic: str, service_url: str) -> list[Delivery]:
    options = PulsarAdapter(topic, service_url=service_url, subscription="s")._options
    native = await asyncio.to_thread(
        client._client.subscribe, topic, "s", options.for_consumer(is_discovered=False)
    )
    await asyncio.to_thread(_send, client, topic)
    await asyncio.sleep(1)  # the client receives ahead: it would have them all for one batch
    found: list[Delivery] = []
    pump = Pump(native, "memory", found.extend, lambda _: None)
    pump.go()
    async with asyncio.timeout(300):
        while sum(len(part.messages) for part in found) < len(SIZES):
            await asyncio.sleep(0.01)
    pump.stop()
    await asyncio.to_thread(pump._thread.join, 10)
    return found


def _send(client: pulsar.Client, topic: str) -> None:
    producer = client.create_producer(topic, batching_enabled=False)
    for size in SIZES:
        producer.send(bytes(size))


EACH = 3
"""Messages of a partition."""

STEADY = 5
"""Looks at the broker's count that have to agree: nothing more is sent."""


@pytest.mark.parametrize("kind", ["exclusive", "shared"])
@pytest.mark.parametrize(
    "partitions, unit",
    [
        pytest.param(8, 100_000, id="few"),
        pytest.param(24, 1_000_000, id="many", marks=pytest.mark.campaign),
    ],
)
async def test_all_partitions_together_hold_no_more_than_the_limit(
    pulsar_server: PulsarServer, partitions: int, unit: int, kind: str
) -> None:
    """Of messages of 1 to 5 units: what the broker has sent, and nobody has fetched. All come, in order."""
    topic = f"persistent://public/default/room-{uuid.uuid4().hex[:8]}"
    await pulsar_server.create_topic(topic, partitions)
    await pulsar_server.create_subscription(topic, "s")
    sizes = [(1 + n % 5) * unit for n in range(partitions)]
    await asyncio.to_thread(_fill, pulsar_server.service_url, topic, sizes)
    largest = 5 * unit
    limit = (partitions + 2) * largest + 2 * unit
    assert limit < EACH * sum(sizes)
    options: dict[str, Any] = {"type": kind, "memory_limit": limit, "max_message_size": largest}
    made = partial(PulsarAdapter, topic, service_url=pulsar_server.service_url, subscription="s")
    adapter = made(**options)
    await adapter.open(Owner())
    try:
        sent = await _sent(pulsar_server, topic)
    finally:
        await adapter.aclose()
    assert all(sent)
    assert sum(count * size for count, size in zip(sent, sizes, strict=True)) <= limit
    ordering = Ordering.PARTITION if kind == "exclusive" else Ordering.NONE
    assert await _values(Consumer(made(**options)), EACH * partitions, ordering) == {
        n: [*range(EACH)] for n in range(partitions)
    }


async def _sent(server: PulsarServer, topic: str) -> list[int]:
    """How many messages of each partition the broker has sent, when it sends no more."""
    seen: list[list[int]] = []
    async with asyncio.timeout(300):
        while len(seen) < STEADY or seen[-1] != seen[-STEADY] or not all(seen[-1]):
            await asyncio.sleep(0.2)
            stats = [part["subscriptions"]["s"] for part in await server.stats(topic)]
            seen.append([part["msgOutCounter"] for part in stats])
    return seen[-1]


async def _values(consumer: Consumer, count: int, ordering: Ordering) -> dict[int, list[int]]:
    """The numbers of each partition's messages, as they were handled; sorted where there is no order."""
    found: dict[int, list[int]] = {}
    seen = 0

    async def handle(message: Message) -> None:
        nonlocal seen
        value = message.value or b""
        found.setdefault(int(message.partition.id), []).append(value[0])
        seen += 1
        if seen == count:
            consumer.stop()

    async with asyncio.timeout(300):
        await consumer.run(handle, concurrency=8, ordering=ordering, handle_signals=False)
    if ordering is Ordering.NONE:
        for numbers in found.values():
            numbers.sort()
    return dict(sorted(found.items()))


def _fill(service_url: str, topic: str, sizes: list[int]) -> None:
    client = pulsar.Client(service_url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
    try:
        for n, size in enumerate(sizes):
            producer = client.create_producer(f"{topic}-partition-{n}", batching_enabled=False)
            for number in range(EACH):
                producer.send(bytes([number]) + bytes(size - 1))
    finally:
        client.close()
