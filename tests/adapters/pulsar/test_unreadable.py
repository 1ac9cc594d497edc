"""An entry that the network has changed on its way."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from consumer_sdk import Consumer, Message
from consumer_sdk.adapters.pulsar import PulsarAdapter
from consumer_sdk.testing.conformance.adapters.harness import Record
from tests.adapters.pulsar.flipping_way import MARK, flipping
from tests.adapters.pulsar.harness import PulsarHarness

if TYPE_CHECKING:
    from consumer_sdk.testing.servers import PulsarEndpoint

pytestmark = pytest.mark.pulsar


@pytest.mark.xfail(
    strict=True,
    raises=AssertionError,
    reason="the native client discards an entry with a wrong checksum, acks it, and tells nobody "
    "but its own log; docs/pulsar.md, 'Entries that cannot be read'",
)
async def test_entry_that_the_network_changed_comes_again(pulsar_server: PulsarEndpoint) -> None:
    """The ledger is sound: neither this consumer nor the next one may pass it."""
    harness = PulsarHarness(pulsar_server)
    stream = await harness.create_stream()
    await harness.append(stream, [Record(b"0"), Record(MARK), Record(b"2")])
    seen: list[bytes | None] = []

    async def see(message: Message) -> None:
        seen.append(message.value)
        if message.value == b"2":
            consumer.stop()

    async with flipping(pulsar_server.service_url) as url:
        adapter = PulsarAdapter(
            stream, service_url=url, admin_url=pulsar_server.admin_url, subscription="g"
        )
        consumer = Consumer(adapter)
        await consumer.run(see)
    assert MARK in seen or await harness.backlog(stream, "g") > 0
