"""A network between clients and a server in which faults come and go, all of them from one seed."""

from __future__ import annotations

import asyncio
import random
import struct
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from enum import Enum
from typing import Self

from consumer_sdk.testing.servers.ports import HOST, free_ports

__all__ = ["Fault", "FaultProxy", "Rewriting", "kafka_addresses", "pulsar_addresses"]

CHUNK = 1 << 16
SLOW = 64_000
"""Bytes a second and direction of a line that is narrow."""
LARGE = 2_000
"""Bytes of a frame that holds records: its middle may be damaged, since they have a checksum."""

Rewriting = Callable[[int, int], tuple[bytes, bytes]]
"""Of the server's port and ours: what stands in the server's frames, and what has to stand there."""


def kafka_addresses(server: int, ours: int) -> tuple[bytes, bytes]:
    """A host, and its port behind it, as metadata and coordinators have them."""
    host = HOST.encode()
    return host + struct.pack(">i", server), host + struct.pack(">i", ours)


def pulsar_addresses(server: int, ours: int) -> tuple[bytes, bytes]:
    """The URL that a look-up answers; both ports have as many digits."""
    assert len(str(server)) == len(str(ours))
    return f"//{HOST}:{server}".encode(), f"//{HOST}:{ours}".encode()


class Fault(Enum):
    """What may be wrong with the line.

    ``HALF_OPEN`` lets connections stand, and nothing through; ``STALLED`` lets nothing through from the
    server, ``MUTE`` nothing to it; ``REFUSED`` ends all connections and takes no new ones. ``CORRUPT`` turns one bit of one
    answer: what is damaged again and again, a consumer takes for damaged in the log.
    """

    NONE = "none"
    LATENCY = "latency"
    NARROW = "narrow"
    HALF_OPEN = "half open"
    STALLED = "stalled"
    MUTE = "mute"
    RESET = "reset"
    REFUSED = "refused"
    CORRUPT = "corrupt"


class FaultProxy:
    """Passes on what clients and the server say, as far as the line lets it.

    Args:
        server: ``host:port``.
        rewriting: what frames say of addresses; without it, bytes are passed on as they come.
        seed: of `weather`.

    Attributes:
        fault: what is wrong now.
        connections: that clients have made.
        spells: how often each fault came.
        sent: bytes from clients.
        damaged: frames in which a bit was turned.
    """

    def __init__(self, server: str, rewriting: Rewriting | None = None, seed: int = 0) -> None:
        host, _, port = server.rpartition(":")
        self._target = host, int(port)
        self._rewriting = rewriting
        self._chance = random.Random(seed)
        self._links: set[asyncio.Task[None]] = set()
        self._changed = asyncio.Event()
        self._pattern = b"", b""
        self.fault = Fault.NONE
        self.connections = 0
        self.spells: Counter[str] = Counter()
        self.sent = 0
        self._damages = False
        self.damaged = 0

    async def __aenter__(self) -> Self:
        (port,) = free_ports(1)  # all of which have five digits
        self._server = await asyncio.start_server(self._accept, HOST, port)
        if self._rewriting is not None:
            self._pattern = self._rewriting(self._target[1], self.port)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        await self._cut()

    @property
    def port(self) -> int:
        """Ours."""
        port: int = self._server.sockets[0].getsockname()[1]
        return port

    @property
    def address(self) -> str:
        """``host:port`` for clients."""
        return f"{HOST}:{self.port}"

    # -- what is wrong --------------------------------------------------------------------------

    async def become(self, fault: Fault) -> None:
        """The line is like this from now on."""
        self.fault = fault
        self.spells[fault.value] += 1
        self._damages = fault is Fault.CORRUPT
        self._changed.set()
        self._changed = asyncio.Event()
        if fault in (Fault.RESET, Fault.REFUSED):
            await self._cut()

    async def weather(self, faults: Sequence[Fault], longest: float) -> None:
        """Faults that come and go, until it is cancelled; half of the time there is none."""
        try:
            while True:
                await self.become(self._chance.choice(faults))
                await asyncio.sleep(self._chance.uniform(0.2, longest))
                await self.become(Fault.NONE)
                await asyncio.sleep(self._chance.uniform(0.2, longest))
        finally:
            self.fault = Fault.NONE
            self._changed.set()

    @asynccontextmanager
    async def faulty(self, faults: Sequence[Fault], longest: float) -> AsyncIterator[None]:
        """Weather until the end of the block."""
        task = asyncio.create_task(self.weather(faults, longest))
        try:
            yield
        finally:
            task.cancel()
            await asyncio.wait({task})
            await self.become(Fault.NONE)

    async def _cut(self) -> None:
        links = set(self._links) - {asyncio.current_task()}
        for link in links:
            link.cancel()
        if links:
            await asyncio.wait(links)

    # -- connections ----------------------------------------------------------------------------

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        link = asyncio.current_task()
        assert link is not None
        self.connections += 1
        self._links.add(link)
        link.add_done_callback(self._links.discard)
        if self.fault is Fault.REFUSED:
            writer.transport.abort()
            return
        with suppress(OSError, asyncio.CancelledError):
            await self._link(reader, writer)
        writer.transport.abort()

    async def _link(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there = await asyncio.open_connection(*self._target)
        ways = [
            asyncio.ensure_future(self._pass_on(reader, there[1], is_answer=False)),
            asyncio.ensure_future(self._pass_on(there[0], writer, is_answer=True)),
        ]
        try:
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for way in ways:
                way.cancel()
            there[1].transport.abort()
            await asyncio.gather(*ways, return_exceptions=True)

    async def _pass_on(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, is_answer: bool
    ) -> None:
        is_framed = is_answer and self._rewriting is not None
        while data := await (_frame(reader) if is_framed else reader.read(CHUNK)):
            if is_answer:
                data = self._changed_by_the_way(data)
            else:
                self.sent += len(data)
            await self._hindered(len(data), is_answer=is_answer)
            writer.write(data)
            await writer.drain()

    def _changed_by_the_way(self, data: bytes) -> bytes:
        before, after = self._pattern
        if before:
            data = data.replace(before, after)
        if self._damages and len(data) > LARGE:
            self._damages = False
            at = len(data) // 2 + self._chance.randrange(len(data) // 4)
            data = data[:at] + bytes([data[at] ^ 0x10]) + data[at + 1 :]
            self.damaged += 1
        return data

    async def _hindered(self, size: int, *, is_answer: bool) -> None:
        """Waits as long as the line makes it."""
        if self.fault is Fault.LATENCY:
            await asyncio.sleep(self._chance.uniform(0.05, 0.5))
        elif self.fault is Fault.NARROW:
            await asyncio.sleep(size / SLOW)
        while self.fault is Fault.HALF_OPEN or self.fault is (
            Fault.STALLED if is_answer else Fault.MUTE
        ):
            await self._changed.wait()


async def _frame(reader: asyncio.StreamReader) -> bytes:
    """One with its length before it; empty at the end."""
    try:
        head = await reader.readexactly(4)
        return head + await reader.readexactly(int.from_bytes(head))
    except (asyncio.IncompleteReadError, OSError):
        return b""
