"""The servers that the tests of one run share: each starts once, when a test first asks for it.

With pytest-xdist the controller owns them. Its workers ask it over a socket of the loopback address, and get the
address of the server: no worker that ends early takes a server along, and none is started twice.
"""

from __future__ import annotations

import asyncio
import secrets
from collections import defaultdict
from collections.abc import Callable, Coroutine
from contextlib import suppress
from multiprocessing import AuthenticationError
from multiprocessing.connection import Client, Connection, Listener
from threading import Lock, Thread
from typing import TypeAlias

from consumer_sdk.errors import ConfigurationError
from consumer_sdk.testing.servers.external import (
    ExternalKafka,
    ExternalKinesis,
    ExternalPulsar,
    ExternalServer,
    ExternalZooKeeper,
    external_address,
    external_pulsar,
    external_url,
)
from consumer_sdk.testing.servers.kafka import KafkaServer
from consumer_sdk.testing.servers.kinesis.servers import KinesaliteServer, KinesisServer
from consumer_sdk.testing.servers.ports import HOST
from consumer_sdk.testing.servers.pulsar.server import PulsarServer
from consumer_sdk.testing.servers.server import Server
from consumer_sdk.testing.servers.zookeeper import ZooKeeperServer

__all__ = ["ServerDesk", "SharedServer", "SharedServers", "ask_desk", "complete", "make_server"]

SharedServer: TypeAlias = Server | ExternalServer
DeskAddress: TypeAlias = tuple[str, int, bytes]


def make_server(name: str) -> Server:
    """Return the server of a name, as tests want it; it is not started yet."""
    return _MAKERS[name]()


_MAKERS: dict[str, Callable[[], Server]] = {
    "kafka": KafkaServer,
    "kinesalite": KinesaliteServer,
    "kinesis": KinesisServer,
    "pulsar": PulsarServer,
    "zookeeper": ZooKeeperServer,
}


class SharedServers:
    """Starts each server when it is first asked for; one that the environment names is used instead.

    Concurrency: any thread, at any time.

    Args:
        make: makes the server of a name.
    """

    def __init__(self, make: Callable[[str], Server] = make_server) -> None:
        self._make = make
        self._servers: dict[str, Server] = {}
        self._failures: dict[str, Exception] = {}
        self._locks: defaultdict[str, Lock] = defaultdict(Lock)

    def get(self, name: str) -> SharedServer:
        """Return the running server of a name.

        Raises:
            ServerError: it cannot be started; a second call does not try again.
            MissingExtraError: its client or its Node.js is not installed.
            ConfigurationError: the environment names one in a way that cannot be read.
        """
        with self._locks[name]:
            return _named_by_environment(name) or self._servers.get(name) or self._started(name)

    def ended(self) -> str | None:
        """Say which server ended though nobody stopped it; None while all run."""
        for server in list(self._servers.values()):
            if not server.is_running:
                return (
                    f"{server.name} on {server.address} ended during the run; {server.last_words}"
                )
        return None

    def close(self) -> None:
        """Stop what was started; idempotent."""
        while self._servers:
            complete(self._servers.popitem()[1].aclose())

    def _started(self, name: str) -> Server:
        if name in self._failures:
            raise self._failures[name]
        server = self._make(name)
        try:
            complete(server.start())
        except Exception as error:
            self._failures[name] = error
            complete(server.aclose())
            raise
        self._servers[name] = server
        return server


class ServerDesk:
    """Answers the workers of a run that ask for a shared server.

    Args:
        servers: what they get.

    Attributes:
        address: what `ask_desk` takes; plain values that can be sent to a worker.
    """

    def __init__(self, servers: SharedServers) -> None:
        self._servers = servers
        key = secrets.token_bytes(32)
        # More than there are workers: one that finds the queue full takes itself for connected, is
        # forgotten here, and waits for ever.
        self._listener = Listener((HOST, 0), backlog=128, authkey=key)
        host, port = self._listener.address
        self.address: DeskAddress = (str(host), int(port), key)
        Thread(target=self._serve, name="server desk", daemon=True).start()

    def close(self) -> None:
        """Answer nobody any more."""
        self._listener.close()

    def _serve(self) -> None:
        while True:
            try:
                connection = self._listener.accept()
            except (ConnectionError, EOFError, AuthenticationError):
                continue  # a stranger, or a worker that ended while it asked
            except OSError:  # closed
                return
            # In a thread of its own: nobody waits for the start of a server that another one wants.
            Thread(target=self._answer, args=(connection,), daemon=True).start()

    def _answer(self, connection: Connection[object, object]) -> None:
        with connection, suppress(EOFError, OSError):  # the worker may be gone
            name = str(connection.recv())
            try:
                connection.send(_as_external(self._servers.get(name)))
            except Exception as error:  # noqa: BLE001 - whatever it is, the worker raises it
                connection.send(error)


def ask_desk(address: DeskAddress, name: str) -> ExternalServer:
    """Return the shared server of a name, from the process that owns it.

    Raises:
        Exception: what `SharedServers.get` raised there.
    """
    host, port, key = address
    with Client((host, port), authkey=key) as connection:
        connection.send(name)
        answer = connection.recv()
    if isinstance(answer, Exception):
        raise answer
    assert isinstance(answer, ExternalServer)
    return answer


def complete(work: Coroutine[object, object, None]) -> None:
    """Run a server's coroutine to its end where no event loop runs."""
    # asyncio.run() would unset the current loop, which belongs to the test's own runner.
    loop = asyncio.new_event_loop()
    try:
        loop.run_until_complete(work)
    finally:
        loop.run_until_complete(loop.shutdown_default_executor())
        loop.close()


def _named_by_environment(name: str) -> ExternalServer | None:
    if name == "pulsar":
        return external_pulsar()
    if name in {"kinesis", "kinesalite"}:
        url = external_url("CONSUMER_SDK_KINESIS")
        return ExternalKinesis(url) if url else None
    address = external_address(f"CONSUMER_SDK_{name.upper()}")
    if address is None:
        return None
    return ExternalKafka(address) if name == "kafka" else ExternalZooKeeper(address)


def _as_external(server: SharedServer) -> ExternalServer:
    match server:
        case ExternalServer():
            return server
        case KafkaServer():
            return ExternalKafka(server.address)
        case KinesisServer() | KinesaliteServer():
            return ExternalKinesis(server.endpoint_url)
        case PulsarServer():
            return ExternalPulsar(server.address, server.admin_url)
        case ZooKeeperServer():
            return ExternalZooKeeper(server.address)
    raise ConfigurationError(f"{server!r} cannot be shared by the workers of a run")
