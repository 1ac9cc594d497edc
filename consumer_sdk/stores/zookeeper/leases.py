"""Leases in ZooKeeper, for consumers on any number of hosts.

The leases of a stream are the znode ``{root}/{group}/{stream}/%leases``, a name that no partition
has. Members are ephemeral znodes below ``…/%members``, whose data counts their renewals. The znode of
a member that dies goes with its session. A member whose event loop hangs keeps its session, since
kazoo goes on pinging; its counter stands still.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError

from consumer_sdk.errors import StoreError, TransientStoreError
from consumer_sdk.leases.backend import LeaseBackend, Reading
from consumer_sdk.stores.zookeeper.bridge import Bridge, is_conflict, translate
from consumer_sdk.stores.zookeeper.tree import Put, Tree, escape, unescape

__all__ = ["LEASES", "ZooKeeperLeaseBackend"]

LEASES = "%leases"
"""The znode's name, which no partition has."""

Request = Callable[[KazooClient], Any]

SESSIONS = 3
"""How often a session may be replaced while a member's znode is written."""


class ZooKeeperLeaseBackend(LeaseBackend):
    """The leases of one group and stream.

    Args:
        bridge: gives the one that is open.
        stream: the path of the stream's znode.
        limit: bytes that a request may have.
    """

    __slots__ = (
        "_bridge",
        "_is_watched",
        "_leases",
        "_limit",
        "_members",
        "_news",
        "_watched_by",
        "_watcher",
    )

    poll = 1.0

    def __init__(self, bridge: Callable[[], Bridge], stream: str, limit: int) -> None:
        self._bridge = bridge
        self._leases = f"{stream}/{LEASES}"
        self._members = f"{stream}/%members"
        self._limit = limit
        self._news = asyncio.Event()
        self._is_watched = False
        self._watched_by: Bridge | None = None
        self._watcher: Callable[[object], None] | None = None

    async def read(self) -> Reading:
        watch = self._watch()
        leases, names = await self._ask(
            lambda client: client.get_async(self._leases, watch=watch),
            lambda client: client.get_children_async(self._members, watch=watch),
        )
        self._is_watched = leases is not None and names is not None
        data, version = (None, 0) if leases is None else (leases[0], leases[1].version + 1)
        members = await self._counts(names or ())
        return Reading(version, None if data is None else data.decode(errors="replace"), members)

    async def _counts(self, names: Sequence[str]) -> dict[str, int]:
        paths = [f"{self._members}/{name}" for name in names]
        answers = await self._ask(*(_getter(path) for path in paths))
        counts = zip(map(unescape, names), answers, strict=True)
        return {name: _count(answer[0]) for name, answer in counts if name and answer}

    def _watch(self) -> Callable[[object], None]:
        """One and the same for each bridge: kazoo keeps every other one until it is called."""
        bridge = self._bridge()
        if self._watcher is None or self._watched_by is not bridge:
            self._watched_by, self._watcher = bridge, bridge.watcher(self._news.set)
        self._news.clear()
        return self._watcher

    async def replace(self, version: int, text: str) -> bool:
        put = Put(self._leases, text.encode(), version - 1 if version else None)
        if put.size > self._limit:
            raise StoreError(
                f"{self._leases}: {put.size} bytes, a request takes {self._limit}: this stream has "
                f"too many partitions for leases in ZooKeeper"
            )
        tree = Tree(self._bridge())
        if not version:
            await tree.ensure(self._leases.rpartition("/")[0])
        refusal = await tree.write([put])
        if refusal is not None and not is_conflict(refusal.error):
            raise translate(refusal.error, self._leases)
        return refusal is None

    async def renew(
        self,
        member: str,
        count: int,
        dead: Mapping[str, int],  # noqa: ARG002 - they go with their sessions
    ) -> None:
        path, data = f"{self._members}/{escape(member)}", b"%d" % count
        for _ in range(SESSIONS):
            session, stat = await self._set(path, data)
            if stat is not None and stat.ephemeralOwner == session:
                return
            if stat is None:
                await Tree(self._bridge()).ensure(self._members)
            # Of an older session, it would go when that one expires.
            await self._ask(_creator(path, data, is_there=stat is not None))
        raise TransientStoreError(f"{path}: the session was replaced {SESSIONS} times")

    async def _set(self, path: str, data: bytes) -> tuple[int, Any]:
        sessions: list[int] = []

        def call(client: KazooClient) -> Any:
            sessions.append((client.client_id or (0,))[0])
            return client.set_async(path, data)

        (stat,) = await self._ask(call)
        return sessions[-1], stat

    async def leave(self, member: str) -> None:
        path = f"{self._members}/{escape(member)}"
        await self._ask(lambda client: client.delete_async(path))

    async def wait(self, seconds: float) -> None:
        """Until a watch is called; where there is nothing to watch yet, until the next look."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds if self._is_watched else min(self.poll, seconds)):
                await self._news.wait()

    async def _ask(self, *requests: Request) -> list[Any]:
        """The answers; None where there is no such znode."""
        answers = await self._bridge().ask(lambda client, request: request(client), requests)
        return [_value(answer, self._leases) for answer in answers]


def _getter(path: str) -> Request:
    return lambda client: client.get_async(path)


def _creator(path: str, data: bytes, *, is_there: bool) -> Request:
    def create(client: KazooClient) -> Any:
        request = client.transaction()
        if is_there:
            request.delete(path)
        request.create(path, data, ephemeral=True)
        return request.commit_async()

    return create


def _value(answer: Any, path: str) -> Any:
    if isinstance(answer, NoNodeError):
        return None
    if isinstance(answer, Exception):
        raise translate(answer, path) from answer
    return answer


def _count(data: bytes) -> int:
    return int(data) if data.isdigit() else 0
