"""An entry that the network has changed on its way."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING

import pytest

from consumer_sdk import Consumer, Message
from consumer_sdk.adapters.pulsar import PulsarAdapter
from consumer_sdk.testing.conformance.adapter_harness import Record
from tests.adapters.pulsar.harness import PulsarHarness

if TYPE_CHECKING:
    from consumer_sdk.testing.servers import PulsarEndpoint

pytestmark = pytest.mark.pulsar

MARK, FLIPPED = b"-mark-", b"-mbrk-"


@asynccontextmanager
async def flipping(service_url: str) -> AsyncIterator[str]:
    """The URL of a way to the broker on which bits flip in the first entry with a mark."""
    host, port = service_url.removeprefix("pulsar://").split(":")
    left = 1

    def changed(data: bytes) -> bytes:
        nonlocal left
        if left and MARK in data:
            left -= 1
            data = data.replace(MARK, FLIPPED)
        return data.replace(b":" + port.encode(), b":%d" % here)  # the broker tells its address

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        broker = await asyncio.open_connection(host, int(port))

        async def down() -> None:
            while data := await broker[0].read(1 << 16):
                writer.write(changed(data))

        answers = asyncio.ensure_future(down())
        with suppress(OSError, asyncio.CancelledError):
            while data := await reader.read(1 << 16):
                broker[1].write(data)
        answers.cancel()
        writer.close()
        broker[1].close()

    server = await asyncio.start_server(accept, "127.0.0.1", 0)
    here = server.sockets[0].getsockname()[1]
    async with server:
        yield f"pulsar://127.0.0.1:{here}"


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
