"""A ZooKeeper in memory, behind a bridge that can lose, delay and reorder, from one seed."""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any, NamedTuple, TypeVar

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
from consumer_sdk.stores.zookeeper.tree import Znode

T = TypeVar("T")
Applied = Callable[[str, bytes], None]
Watch = Callable[[object], object]


class Change(NamedTuple):
    """One of a transaction: a znode is made, set or deleted; no version: whatever it is."""

    kind: str
    path: str
    data: bytes = b""
    version: int = -1
    owner: int = 0


class Stat(NamedTuple):
    """What is known of a znode beside its data."""

    version: int
    ephemeralOwner: int  # noqa: N815 - kazoo's name


@dataclass
class FakeZooKeeper:
    """The tree, as a server has it.

    Attributes:
        owners: the session of each ephemeral znode.
        watches: what is called, once, when a znode (``/a``) or the names below it (``/a/``) change.
        applied: told of each write that takes effect.
    """

    znodes: dict[str, Znode] = field(default_factory=lambda: {"/": Znode(b"", 0)})
    owners: dict[str, int] = field(default_factory=dict)
    watches: dict[str, list[Watch]] = field(default_factory=dict)
    applied: Applied = lambda _path, _data: None
    sessions: Iterator[int] = field(default_factory=lambda: count(1))

    def handle(
        self, call: Call[T], subject: T, session: int = 0, *, knows_session: bool = True
    ) -> Any:
        """Does what a request does, in one step; what kazoo would have, a value or an error."""
        return call(Client(self, session, knows_session), subject)

    def change(self, changes: Sequence[Change]) -> list[Any]:
        """All or nothing, with kazoo's answers."""
        znodes, owners = dict(self.znodes), dict(self.owners)
        for at, change in enumerate(changes):
            if error := _refusal(znodes, change):
                rest = len(changes) - at - 1
                return [*[RolledBackError()] * at, error, *[RuntimeInconsistency()] * rest]
            old = znodes.get(change.path)
            if change.kind == "delete":
                del znodes[change.path]
                owners.pop(change.path, None)
            else:
                znodes[change.path] = Znode(change.data, 0 if old is None else old.version + 1)
            if change.owner:
                owners[change.path] = change.owner
        self.znodes, self.owners = znodes, owners
        for change in changes:
            if change.kind != "delete":
                self.applied(change.path, change.data)
            self._tell(change)
        return [True] * len(changes)

    def expire(self, session: int) -> None:
        """What is of the session goes with it."""
        gone = [path for path, owner in self.owners.items() if owner == session]
        self.change([Change("delete", path) for path in gone])

    def _tell(self, change: Change) -> None:
        above = f"{change.path.rpartition('/')[0]}/"
        for place in (change.path, *(() if change.kind == "set" else (above,))):
            for watch in self.watches.pop(place, ()):
                watch(place)


def _refusal(znodes: dict[str, Znode], change: Change) -> Any:
    """An exception of kazoo's, or None."""
    znode = znodes.get(change.path)
    if change.kind == "create":
        if change.path.rpartition("/")[0] not in znodes:
            return NoNodeError()
        return None if znode is None else NodeExistsError()
    if znode is None:
        return NoNodeError()
    if change.kind == "delete" and any(path.startswith(f"{change.path}/") for path in znodes):
        return NotEmptyError()
    return None if change.version in (-1, znode.version) else BadVersionError()


@dataclass
class Client:
    """What the store uses of a kazoo client; its handles are the answers themselves."""

    server: FakeZooKeeper
    session: int
    knows_session: bool

    @property
    def client_id(self) -> tuple[int, bytes] | None:
        return (self.session, b"secret") if self.knows_session else None

    def get_async(self, path: str, watch: Watch | None = None) -> Any:
        znode = self.server.znodes.get(path)
        if znode is None:
            return NoNodeError()
        self._watch(path, watch)
        return znode.data, self._stat(path)

    def get_children_async(self, path: str, watch: Watch | None = None) -> Any:
        if path not in self.server.znodes:
            return NoNodeError()
        start = path.rstrip("/") + "/"
        self._watch(start, watch)
        below = (p.removeprefix(start) for p in self.server.znodes if p.startswith(start))
        return [name for name in below if name and "/" not in name]

    def _watch(self, place: str, watch: Watch | None) -> None:
        watching = self.server.watches.setdefault(place, [])
        if watch is not None and watch not in watching:
            watching.append(watch)

    def _stat(self, path: str) -> Stat:
        return Stat(self.server.znodes[path].version, self.server.owners.get(path, 0))

    def ensure_path_async(self, path: str) -> Any:
        parts = path.split("/")
        for end in range(2, len(parts) + 1):
            self.server.znodes.setdefault("/".join(parts[:end]), Znode(b"", 0))
        return True

    def set_async(self, path: str, data: bytes, version: int = -1) -> Any:
        (answer,) = self.server.change([Change("set", path, data, version)])
        return self._stat(path) if answer is True else answer

    def delete_async(self, path: str, version: int = -1) -> Any:
        (answer,) = self.server.change([Change("delete", path, version=version)])
        return answer

    def transaction(self) -> _Transaction:
        return _Transaction(self.server, self.session)


@dataclass
class _Transaction:
    server: FakeZooKeeper
    session: int
    changes: list[Change] = field(default_factory=list)

    def create(self, path: str, data: bytes, *, ephemeral: bool = False) -> None:
        owner = self.session if ephemeral else 0
        self.changes.append(Change("create", path, data, owner=owner))

    def set_data(self, path: str, data: bytes, version: int) -> None:
        self.changes.append(Change("set", path, data, version))

    def delete(self, path: str) -> None:
        self.changes.append(Change("delete", path))

    def commit_async(self) -> list[Any]:
        return self.server.change(self.changes)


class FakeBridge:
    """Stands in for `Bridge`; calls are made one by one.

    Args:
        chaos: where faults and delays come from; None for none.
        fault_rate: the share of calls that go wrong.

    Attributes:
        session: what the server knows it by.
        knows_session: at the next request; else the session is made while that waits.
        is_down: no request reaches the server.
        loses_reply: of the next transaction.
        ended: how it was ended, if it was.
    """

    def __init__(
        self, server: FakeZooKeeper, chaos: random.Random | None = None, fault_rate: float = 0.0
    ) -> None:
        self.server = server
        self.pid = os.getpid()
        self.fault_rate = fault_rate
        self._chaos = chaos
        self._late: set[asyncio.Task[None]] = set()
        self.session = next(server.sessions)
        self.knows_session = True
        self.is_down = self.loses_reply = False
        self.ended: str | None = None

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
            return self._answer(call, subject)
        await asyncio.sleep(self._chaos.choice((0, 0.001, 0.05)))
        fault = self._chaos.choice(FAULTS) if self._chaos.random() < self.fault_rate else None
        if fault == "unsent":
            raise TransientStoreError("no connection")
        if fault == "late":
            self._apply_late(call, subject, self._chaos.uniform(0, 5))
        elif fault != "request lost":
            answer = self.server.handle(call, subject, self.session)
            await asyncio.sleep(self._chaos.choice((0, 0.001, 0.05)))
            if fault is None:
                return answer
        await asyncio.sleep(self._chaos.choice((0, 0.1, 1.0)))
        raise UnknownResultError("no answer")

    def _answer(self, call: Call[T], subject: T) -> Any:
        if self.is_down:
            raise TransientStoreError("no connection")
        knows, self.knows_session = self.knows_session, True
        answer = self.server.handle(call, subject, self.session, knows_session=knows)
        if self.loses_reply and isinstance(answer, list) and True in answer:
            self.loses_reply = False
            raise UnknownResultError("no answer")
        return answer

    def expire(self) -> None:
        """The server forgets the session; the client makes another one."""
        self.server.expire(self.session)
        self.session = next(self.server.sessions)

    def watcher(self, changed: Callable[[], object]) -> Watch:
        """See `Bridge.watcher`."""
        return lambda _: changed()

    def _apply_late(self, call: Call[T], subject: T, delay: float) -> None:
        """Long after its caller has given up, and after newer calls."""

        async def later() -> None:
            await asyncio.sleep(delay)
            self.server.handle(call, subject, self.session)

        task = asyncio.ensure_future(later())
        self._late.add(task)
        task.add_done_callback(self._late.discard)

    async def aclose(self) -> None:
        """Waits for what comes late, and ends the session."""
        await asyncio.gather(*self._late)
        self._end("closed")

    def abandon(self) -> None:
        """Ends the session."""
        self._end("abandoned")

    def _end(self, how: str) -> None:
        self.ended = self.ended or how
        self.server.expire(self.session)


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
