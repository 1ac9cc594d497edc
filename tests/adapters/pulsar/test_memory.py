"""What is received at a time has a limit in bytes, on a real Pulsar."""

from __future__ import annotations

import asyncio
import uuid
from typing import TYPE_CHECKING

import pulsar
import pytest

from consumer_sdk.adapters.pulsar import PulsarAdapter
from consumer_sdk.adapters.pulsar.contents import Delivery
from consumer_sdk.adapters.pulsar.options import BATCH_BYTES
from consumer_sdk.adapters.pulsar.pump import Pump

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
