"""What a client asks a broker, counted on the wire: no counter of the client's own is trusted.

A Kafka of its own advertises the address of a proxy, so that every connection of every process
goes through it. A request is a length of four bytes, then the number of its kind in two.
"""

from __future__ import annotations

import asyncio
import struct
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field

from consumer_sdk.testing.servers import KafkaServer, free_ports

__all__ = ["Calls", "Requests", "counted_kafka"]

_HOST = "127.0.0.1"
_CHUNK = 1 << 16
_HEAD = struct.Struct(">ih")
_KINDS = {1: "Fetch", 2: "ListOffsets", 3: "Metadata", 8: "OffsetCommit", 9: "OffsetFetch"}


@dataclass(slots=True)
class Calls:
    """Requests as they passed.

    Attributes:
        seen: when, in seconds since the epoch, and the number of the kind.
    """

    seen: list[tuple[float, int]] = field(default_factory=list)

    def between(self, begin: float, end: float) -> Counter[str]:
        """How many requests of each kind passed in that time."""
        kinds = (kind for when, kind in self.seen if begin <= when < end)
        return Counter(_KINDS.get(kind, f"kind {kind}") for kind in kinds)


class Requests:
    """Cuts what a client sends into requests, of which only the heads are kept.

    Args:
        calls: where they are noted.
    """

    def __init__(self, calls: Calls) -> None:
        self._calls = calls
        self._data = b""
        self._skip = 0

    def feed(self, data: bytes) -> None:
        """What came next; it may end anywhere."""
        self._data += data
        while self._data:
            skipped = min(self._skip, len(self._data))
            self._data = self._data[skipped:]
            self._skip -= skipped
            if self._skip or len(self._data) < _HEAD.size:
                return
            size, kind = _HEAD.unpack_from(self._data)
            self._calls.seen.append((time.time(), kind))
            self._skip = 4 + size


class _Proxy:
    def __init__(self, port: int, calls: Calls) -> None:
        self._port = port
        self._calls = calls

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Carry one connection until either side ends it."""
        try:
            answers, questions = await asyncio.open_connection(_HOST, self._port)
        except OSError:
            writer.close()
            return
        requests = Requests(self._calls)
        await asyncio.gather(
            _carry(reader, questions, requests.feed), _carry(answers, writer, lambda _: None)
        )


async def _carry(
    source: asyncio.StreamReader, target: asyncio.StreamWriter, note: Callable[[bytes], None]
) -> None:
    with suppress(OSError):
        while data := await source.read(_CHUNK):
            note(data)
            target.write(data)
            await target.drain()
    target.close()


@asynccontextmanager
async def counted_kafka() -> AsyncIterator[tuple[KafkaServer, str, Calls]]:
    """A Kafka, the address to give to clients, and what they ask there."""
    calls = Calls()
    front, back = free_ports(2)
    advertised = {"advertised.listeners": f"PLAINTEXT://{_HOST}:{front}"}
    kafka = KafkaServer(quick=False, port=back, properties=advertised)
    proxy = await asyncio.start_server(_Proxy(back, calls).serve, _HOST, front)
    async with proxy, kafka:
        yield kafka, f"{_HOST}:{front}", calls
