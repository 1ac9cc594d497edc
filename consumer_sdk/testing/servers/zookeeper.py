"""Apache ZooKeeper: one standalone node, from the jars of the PySpark wheel."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import final

from consumer_sdk.testing.servers.errors import JarResolutionError
from consumer_sdk.testing.servers.ivy import pyspark_jars
from consumer_sdk.testing.servers.java import JavaServer
from consumer_sdk.testing.servers.ports import HOST, ask

__all__ = ["ZooKeeperEndpoint", "ZooKeeperServer"]


class ZooKeeperEndpoint(ABC):
    """A ZooKeeper that tests can use, started here or elsewhere."""

    @property
    @abstractmethod
    def hosts(self) -> str:
        """``host:port`` for clients."""


@final
class ZooKeeperServer(JavaServer, ZooKeeperEndpoint):
    """A real ZooKeeper on 127.0.0.1, ready in about one second.

    Args:
        directory: where configuration, data and log lie; a temporary folder by default.
        port: the port for clients; a free one by default.
        properties: server settings that add to or replace ours.
        start_timeout: seconds until a server that is not ready counts as failed.
        quick: leave out Java's second compiler, for a start with half of the work. A benchmark should
            measure what users run instead: False.
    """

    name = "ZooKeeper"

    def __init__(
        self,
        *,
        directory: Path | str | None = None,
        port: int | None = None,
        properties: Mapping[str, object] | None = None,
        start_timeout: float = 600.0,
        quick: bool = True,
    ) -> None:
        super().__init__(directory=directory, port=port, start_timeout=start_timeout, quick=quick)
        self._properties = dict(properties or {})

    @property
    def hosts(self) -> str:
        """``host:port`` for clients."""
        return self.address

    def _prepare(self, java: Path) -> list[str]:
        jars = pyspark_jars()
        if next(jars.glob("zookeeper-3*.jar"), None) is None:
            raise JarResolutionError(f"no ZooKeeper in {jars}: install PySpark 4.2 or newer again")
        config = self._write_properties("zoo.cfg", self._all_properties())
        main = "org.apache.zookeeper.server.ZooKeeperServerMain"
        logging = self._logging_option()
        options = [*self._java_options(), "-Xmx256m", logging]
        return [str(java), *options, "-cp", f"{jars}/*", main, str(config)]

    async def _is_ready(self) -> bool:
        return b"Mode: standalone" in await ask(HOST, self.ports[0], b"srvr")

    def _all_properties(self) -> dict[str, object]:
        return {
            "dataDir": self.directory / "data",
            "clientPort": self.ports[0],
            "clientPortAddress": HOST,
            # Sessions may be as short as two ticks: tests wait for them to expire.
            "tickTime": 500,
            "admin.enableServer": "false",
            "maxClientCnxns": 0,
            "4lw.commands.whitelist": "*",
            **self._properties,
        }
