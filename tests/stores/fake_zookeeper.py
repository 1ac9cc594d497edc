"""A ZooKeeper in memory, behind a bridge that can lose, delay and reorder, from one seed."""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from kazoo.exceptions import (
    BadVersionError,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    RolledBackError,
    RuntimeInconsistency,
)

from consumer_sdk.errors import TransientStoreError
from consumer_sdk.stores import ZooKeeperStore
from consumer_sdk.stores.zookeeper.bridge import Call, UnknownResultError
from consumer_sdk.stores.zookeeper.tree import Put, Znode

T = TypeVar("T")
Applied = Callable[[str, bytes], None]


@dataclass
class FakeZooKeeper:
    """The tree, as a server has it.

    Attributes:
        applied: told of each write that takes effect.
    """

    znodes: dict[str, Znode] = field(default_factory=lambda: {"/": Znode(b"", 0)})
    applied: Applied = lambda _path, _data: None

    def handle(self, call: Call[T], subject: T) -> Any:
        """Does what a request does, in one step; what kazoo would have, a value or an error."""
        return call(_Client(self), subject)

    def put(self, puts: Sequence[Put]) -> list[Any]:
        """All or nothing, with kazoo's answers."""
        znodes = dict(self.znodes)
        for at, put in enumerate(puts):
            if error := _refusal(znodes, put):
                rest = len(puts) - at - 1
                return [*[RolledBackError()] * at, error, *[RuntimeInconsistency()] * rest]
            version = 0 if put.version is None else put.version + 1
            znodes[put.path] = Znode(put.data, version)
        self.znodes = znodes
        for put in puts:
            self.applied(put.path, put.data)
        return [True] * len(puts)


def _refusal(znodes: dict[str, Znode], put: Put) -> Any:
    """An exception of kazoo's, or None."""
    znode = znodes.get(put.path)
    if put.version is None:
        if put.path.rpartition("/")[0] not in znodes:
            return NoNodeError()
        return None if znode is None else NodeExistsError()
    if znode is None:
        return NoNodeError()
    return None if znode.version == put.version else BadVersionError()


@dataclass
class _Client:
    """What the store uses of a kazoo client; its handles are the answers themselves."""

    server: FakeZooKeeper

    def get_async(self, path: str) -> Any:
        znode = self.server.znodes.get(path)
        return NoNodeError() if znode is None else (znode.data, znode)

    def get_children_async(self, path: str) -> Any:
        if path not in self.server.znodes:
            return NoNodeError()
        start = path.rstrip("/") + "/"
        below = (p.removeprefix(start) for p in self.server.znodes if p.startswith(start))
        return [name for name in below if name and "/" not in name]

    def ensure_path_async(self, path: str) -> Any:
        parts = path.split("/")
        for end in range(2, len(parts) + 1):
            self.server.znodes.setdefault("/".join(parts[:end]), Znode(b"", 0))
        return True

    def delete_async(self, path: str, version: int) -> Any:
        if below := self.get_children_async(path):
            return below if isinstance(below, NoNodeError) else NotEmptyError()
        if self.server.znodes[path].version != version:
            return BadVersionError()
        del self.server.znodes[path]
        return True

    def transaction(self) -> _Transaction:
        return _Transaction(self.server)


@dataclass
class _Transaction:
    server: FakeZooKeeper
    puts: list[Put] = field(default_factory=list)

    def create(self, path: str, data: bytes) -> None:
        self.puts.append(Put(path, data, None))

    def set_data(self, path: str, data: bytes, version: int) -> None:
        self.puts.append(Put(path, data, version))

    def commit_async(self) -> list[Any]:
        return self.server.put(self.puts)


class FakeBridge:
    """Stands in for `Bridge`; calls are made one by one.

    Args:
        chaos: where faults and delays come from; None for none.
        fault_rate: the share of calls that go wrong.
    """

    def __init__(
        self, server: FakeZooKeeper, chaos: random.Random | None = None, fault_rate: float = 0.0
    ) -> None:
        self.server = server
        self.pid = os.getpid()
        self.fault_rate = fault_rate
        self._chaos = chaos
        self._late: set[asyncio.Task[None]] = set()

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """Whichever asks."""
        return asyncio.get_running_loop()

    async def ask(self, call: Call[T], subjects: Sequence[T]) -> list[Any]:
        """The answers, or what a network does to them."""
        return [await self._ask(call, subject) for subject in subjects]

    async def _ask(self, call: Call[T], subject: T) -> Any:
        if self._chaos is None:
            await asyncio.sleep(0)
            return self.server.handle(call, subject)
        await asyncio.sleep(self._chaos.choice((0, 0.001, 0.05)))
        fault = self._chaos.choice(FAULTS) if self._chaos.random() < self.fault_rate else None
        if fault == "unsent":
            raise TransientStoreError("no connection")
        if fault == "late":
            self._apply_late(call, subject, self._chaos.uniform(0, 5))
        elif fault != "request lost":
            answer = self.server.handle(call, subject)
            await asyncio.sleep(self._chaos.choice((0, 0.001, 0.05)))
            if fault is None:
                return answer
        await asyncio.sleep(self._chaos.choice((0, 0.1, 1.0)))
        raise UnknownResultError("no answer")

    def _apply_late(self, call: Call[T], subject: T, delay: float) -> None:
        """Long after its caller has given up, and after newer calls."""

        async def later() -> None:
            await asyncio.sleep(delay)
            self.server.handle(call, subject)

        task = asyncio.ensure_future(later())
        self._late.add(task)
        task.add_done_callback(self._late.discard)

    async def aclose(self) -> None:
        """Waits for what comes late."""
        await asyncio.gather(*self._late)

    def abandon(self) -> None:
        """Nothing to end."""


FAULTS = ("unsent", "request lost", "reply lost", "late")


def store_on(
    server: FakeZooKeeper, chaos: random.Random | None = None, fault_rate: float = 0.0
) -> ZooKeeperStore:
    """A store that is as good as open."""
    store = ZooKeeperStore("fake:1", root="/sdk")
    connect(store, server, chaos, fault_rate)
    return store


def connect(
    store: ZooKeeperStore,
    server: FakeZooKeeper,
    chaos: random.Random | None = None,
    fault_rate: float = 0.0,
) -> None:
    """Opens a store, if it is closed."""
    store._bridge = FakeBridge(server, chaos, fault_rate)  # type: ignore[assignment] # the same seam
