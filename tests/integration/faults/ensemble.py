"""A ZooKeeper of three servers, any of which may be killed."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Self

from consumer_sdk.testing.servers.ivy import pyspark_jars
from consumer_sdk.testing.servers.java import JavaServer
from consumer_sdk.testing.servers.ports import HOST, ask, free_ports

__all__ = ["Ensemble"]

SIZE = 3


class QuorumServer(JavaServer):
    """One of them.

    Args:
        number: from 1.
        servers: by number, the two ports by which each talks to the others.
    """

    name = "ZooKeeper"

    def __init__(self, number: int, servers: dict[int, tuple[int, int]]) -> None:
        super().__init__(directory=None, port=None, start_timeout=600.0, quick=True)
        self._number = number
        self._servers = servers

    def _prepare(self, java: Path) -> list[str]:
        data = self.directory / "data"
        data.mkdir(exist_ok=True)
        (data / "myid").write_text(str(self._number))
        config = self._write_properties("zoo.cfg", self._properties_of_all(data))
        options = [*self._java_options(), "-Xmx128m", self._logging_option()]
        main = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
        return [str(java), *options, "-cp", f"{pyspark_jars()}/*", main, str(config)]

    def _properties_of_all(self, data: Path) -> dict[str, object]:
        others = {f"server.{n}": f"{HOST}:{a}:{b}" for n, (a, b) in self._servers.items()}
        return {
            "dataDir": data,
            "clientPort": self.ports[0],
            "clientPortAddress": HOST,
            "tickTime": 500,
            "initLimit": 60,
            "syncLimit": 20,
            "admin.enableServer": "false",
            "maxClientCnxns": 0,
            "4lw.commands.whitelist": "*",
            **others,
        }

    async def _is_ready(self) -> bool:
        """It listens; whether there is a quorum is another question."""
        return b"imok" in await ask(HOST, self.ports[0], b"ruok")


class Ensemble:
    """Three servers.

    Attributes:
        servers: from the first to the last.
    """

    def __init__(self) -> None:
        ports = free_ports(2 * SIZE)
        pairs = {n + 1: (ports[2 * n], ports[2 * n + 1]) for n in range(SIZE)}
        self.servers = [QuorumServer(n, pairs) for n in pairs]
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Self:
        await asyncio.gather(*map(self._stack.enter_async_context, self.servers))
        await self.until_whole()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()

    async def until_whole(self) -> None:
        """Waits until all of them have elected a leader, and follow it."""
        for server in self.servers:
            while b"Mode: " not in await ask(HOST, server.ports[0], b"srvr"):
                await asyncio.sleep(0.05)

    @property
    def hosts(self) -> str:
        """For clients."""
        return ",".join(server.address for server in self.servers)
