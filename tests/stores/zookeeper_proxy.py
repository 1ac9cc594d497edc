"""A network between stores and a real ZooKeeper that can be cut, or lose one answer."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Self

MULTI = 14  # the type of a request that writes several znodes

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class Proxy:
    """Passes frames on between clients and a server.

    Args:
        server: ``host:port``.
    """

    def __init__(self, server: str) -> None:
        self._target = server.split(":")
        self._links: set[asyncio.Task[None]] = set()
        self._writes_left = 0
        self._goes_down = self._is_down = False

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        self.cut()
        await asyncio.gather(*self._links)

    @property
    def writes_left(self) -> int:
        """Writes until the one whose answer is lost."""
        return self._writes_left

    @property
    def hosts(self) -> str:
        """``host:port`` for clients."""
        return f"127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    def cut(self) -> None:
        """Breaks all connections; new ones can be made."""
        for link in self._links:
            link.cancel()

    def lose_next_reply(self) -> None:
        """The next write is passed on, and the connection breaks instead of its answer."""
        self._writes_left = 1

    def go_down_at_write(self, number: int) -> None:
        """That write is passed on, and instead of its answer the network is down."""
        self._writes_left, self._goes_down = number, True

    def come_up(self) -> None:
        """Connections can be made again, and no answer is lost any more."""
        self._goes_down = self._is_down = False
        self._writes_left = 0

    @contextmanager
    def down(self) -> Iterator[None]:
        """No connection stays, and none can be made."""
        self._is_down = True
        self.cut()
        try:
            yield
        finally:
            self._is_down = False

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._is_down:
            writer.close()
            return
        link = asyncio.ensure_future(self._link((reader, writer)))
        self._links.add(link)
        link.add_done_callback(self._links.discard)

    async def _link(self, client: Streams) -> None:
        server = await asyncio.open_connection(*self._target)
        lost: set[bytes] = set()

        def is_lost_request(frame: bytes) -> bool:
            if self._writes_left and int.from_bytes(frame[4:8]) == MULTI:
                self._writes_left -= 1
                if not self._writes_left:
                    lost.add(frame[:4])
                    self._is_down = self._goes_down
            return False

        try:
            await asyncio.wait(
                [
                    asyncio.ensure_future(_pump(client[0], server[1], is_lost_request)),
                    asyncio.ensure_future(_pump(server[0], client[1], lambda f: f[:4] in lost)),
                ],
                return_when=asyncio.FIRST_COMPLETED,
            )
        except asyncio.CancelledError:
            pass  # cut
        finally:
            client[1].transport.abort()
            server[1].transport.abort()


async def _pump(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, is_last: Callable[[bytes], bool]
) -> None:
    """Passes frames on until one of the two is gone, or ``is_last`` says so."""
    with suppress(OSError, asyncio.IncompleteReadError):
        while True:
            head = await reader.readexactly(4)
            frame = await reader.readexactly(int.from_bytes(head))
            if is_last(frame):
                return
            writer.write(head + frame)
            await writer.drain()
