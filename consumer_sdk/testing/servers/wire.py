"""One question and one answer over a plain socket: how readiness is asked for without a client."""

import asyncio
import struct
from contextlib import suppress

__all__ = ["ask", "knows_a_broker"]

_PATIENCE = 2.0  # seconds; a server that is starting may accept and then say nothing

# Kafka protocol: Metadata (api key 3) version 1 for no topics, correlation id 1, client "ready".
_METADATA = struct.pack(">hhih5si", 3, 1, 1, 5, b"ready", 0)


async def ask(host: str, port: int, question: bytes, *, size: int = -1) -> bytes:
    """Send the question and return the answer, empty when there is none.

    Args:
        host: where to connect to.
        port: likewise.
        question: what to send.
        size: bytes to wait for; -1 for all until the server closes the connection.
    """
    try:
        async with asyncio.timeout(_PATIENCE):
            reader, writer = await asyncio.open_connection(host, port)
            try:
                writer.write(question)
                return await (reader.read() if size < 0 else reader.readexactly(size))
            finally:
                writer.close()
                with suppress(OSError):
                    await writer.wait_closed()
    except (OSError, EOFError, TimeoutError):
        return b""


async def knows_a_broker(host: str, port: int) -> bool:
    """Return whether the Kafka there answers a metadata request and lists a live broker.

    A KRaft broker answers requests a little before it is a member of its own cluster; topics
    cannot be made until then.
    """
    question = struct.pack(">i", len(_METADATA)) + _METADATA
    answer = await ask(host, port, question, size=12)
    return len(answer) == 12 and struct.unpack(">iii", answer)[2] > 0  # noqa: PLR2004  length, correlation, brokers
