"""A kazoo client that does what a test says, and a bridge to it on virtual time."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import pytest
from kazoo.protocol.states import KazooState, KeeperState

from consumer_sdk.stores.zookeeper.bridge import Bridge
from consumer_sdk.testing.simulation import simulate

PATIENCE = 8.0
HOST = ("zk1", 2181)


class Handle:
    """An answer of kazoo's, which comes when a test says so."""

    def __init__(self, subject: object) -> None:
        self.subject = subject
        self.value: Any = None
        self.exception: Exception | None = None
        self._is_ready = False
        self._links: list[Callable[[Handle], None]] = []

    def ready(self) -> bool:
        """Whether it has come."""
        return self._is_ready

    def rawlink(self, link: Callable[[Handle], None]) -> None:
        """Calls it when it comes."""
        assert not self._is_ready
        self._links.append(link)

    def answer(self, error: Exception | None = None) -> None:
        """It comes."""
        self.value, self.exception, self._is_ready = f"<{self.subject}>", error, True
        for link in self._links:
            link(self)


class Client:
    """A kazoo client: as a test lets it be."""

    def __init__(self) -> None:
        self.hosts = [HOST]
        self.client_state = KeeperState.CLOSED
        self.handles: list[Handle] = []
        self.did: list[str] = []
        self.stopped = threading.Event()
        self.may_stop = threading.Event()
        self.may_stop.set()
        self._listeners: list[Callable[[str], None]] = []

    def add_listener(self, listener: Callable[[str], None]) -> None:
        """Tells it each change of the state."""
        self._listeners.append(listener)

    def start_async(self) -> None:
        """Begins to connect."""
        self.did.append("start")

    def stop(self) -> None:
        """Ends the session."""
        self.may_stop.wait(300)
        self.did.append("stop")

    def close(self) -> None:
        """Gives up what it has."""
        self.did.append("close")
        self.stopped.set()

    def become(self, keeper: str, state: str) -> None:
        """Tells its listeners."""
        self.client_state = keeper
        for listener in self._listeners:
            listener(state)

    def connect(self) -> None:
        """It has a session."""
        self.become(KeeperState.CONNECTED, KazooState.CONNECTED)

    def ask(self, subject: object) -> Handle:
        """A request."""
        self.handles.append(Handle(subject))
        return self.handles[-1]

    def answer(self, *at: int) -> None:
        """Answers those requests, or all that wait."""
        for number in at or range(len(self.handles)):
            if not self.handles[number].ready():
                self.handles[number].answer()


class Maker:
    """Makes clients, and says what is wrong with the servers."""

    def __init__(self) -> None:
        self.clients: list[Client] = []
        self.trouble: str | None = None
        self.asked: list[Sequence[tuple[str, int]]] = []

    def __call__(self) -> Client:
        self.clients.append(Client())
        return self.clients[-1]

    async def explain(self, hosts: Sequence[tuple[str, int]]) -> str | None:
        """Why there is no connection."""
        self.asked.append(hosts)
        return self.trouble


class Scene:
    """A bridge and its clients."""

    def __init__(self) -> None:
        self.maker = Maker()
        self.bridge = Bridge(self.maker, PATIENCE)  # type: ignore[arg-type] # the same seam
        self._tasks: list[asyncio.Task[list[Any]]] = []

    @property
    def client(self) -> Client:
        """The one in use."""
        return self.maker.clients[-1]

    async def connected(self) -> None:
        """There is a session."""
        self.client.connect()
        await turns()

    async def ask(self, subjects: Sequence[object]) -> asyncio.Task[list[Any]]:
        """Is under way."""
        task = asyncio.ensure_future(self.bridge.ask(Client.ask, subjects))
        self._tasks.append(task)
        await turns()
        return task

    async def worked(self) -> None:
        """An answer has come."""
        await self.connected()
        call = await self.ask(["first"])
        self.client.answer()
        assert await call == ["<first>"]

    async def end(self) -> None:
        """Whatever is left is not waited for."""
        self.bridge.abandon()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for client in self.maker.clients:
            client.may_stop.set()
            assert await asyncio.to_thread(client.stopped.wait, 300)


async def turns() -> None:
    """What is ready runs, and what that has made ready."""
    for _ in range(10):
        await asyncio.sleep(0)


def play(scenario: Callable[[Scene], Awaitable[None]]) -> None:
    """On virtual time."""

    async def main(_simulation: object) -> None:
        scene = Scene()
        try:
            await scenario(scene)
        finally:
            await scene.end()

    simulate(main)


def now() -> float:
    """Virtual seconds."""
    return asyncio.get_running_loop().time()


async def failed(call: Awaitable[object], kind: type[Exception], words: str) -> float:
    """How long it took until a call failed in that way."""
    began = now()
    with pytest.raises(kind, match=words) as caught:
        await call
    assert type(caught.value) is kind
    return now() - began
