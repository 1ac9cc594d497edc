"""A way to a real Pulsar on which a bit flips."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

__all__ = ["FLIPPED", "MARK", "flipping"]

MARK, FLIPPED = b"-mark-", b"-mbrk-"


@asynccontextmanager
async def flipping(service_url: str, times: int = 1) -> AsyncIterator[str]:
    """The URL of a way to the broker on which a bit flips in the first entries with a mark."""
    host, port = service_url.removeprefix("pulsar://").split(":")
    left = times

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
