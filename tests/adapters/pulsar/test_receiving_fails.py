"""Receiving that fails under a connection that holds, on a real Pulsar."""

from __future__ import annotations

import asyncio
import uuid
from typing import TYPE_CHECKING, Any

import _pulsar
import pytest

from consumer_sdk import Consumer
from consumer_sdk.adapters.pulsar import PulsarAdapter

if TYPE_CHECKING:
    from consumer_sdk.testing.servers import PulsarServer

pytestmark = pytest.mark.pulsar


class Broken:
    """A native consumer whose messages cannot be received."""

    def receive(self, milliseconds: int) -> Any:
        """As one that was closed under the thread."""
        raise _pulsar.AlreadyClosed(str(milliseconds))

    def batch_receive(self) -> list[Any]:
        """The same, behind a message that was received: it is not lost."""
        raise _pulsar.AlreadyClosed("closed")


@pytest.mark.parametrize("kind", ["exclusive", "failover", "shared"])
async def test_partition_whose_receiving_failed_goes_on(
    pulsar_server: PulsarServer, kind: Any
) -> None:
    """It begins anew within seconds; what was not acked comes again, and so does what is new."""
    topic = f"persistent://public/default/fails-{uuid.uuid4().hex[:8]}"
    await pulsar_server.create_topic(topic)
    await pulsar_server.produce(topic, [b"1", b"2"])
    adapter = PulsarAdapter(
        topic, service_url=pulsar_server.service_url, subscription="s", type=kind
    )
    async with Consumer(adapter) as consumer, asyncio.timeout(300):
        first, second = [await anext(consumer) for _ in range(2)]
        first.ack()
        await consumer.flush()
        (subscriber,) = adapter._session.subscribers.values()
        assert subscriber._pump is not None
        subscriber._pump._consumer = Broken()
        await pulsar_server.produce(topic, [b"3"])
        found = [await anext(consumer) for _ in range(2)]
        assert [message.value for message in found] == [second.value, b"3"]
        for message in found:
            message.ack()
