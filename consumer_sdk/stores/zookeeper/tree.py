"""Znodes, read and written many at a time."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError, NotEmptyError, RolledBackError

from consumer_sdk.stores.zookeeper.bridge import Bridge, is_conflict, translate

__all__ = ["Put", "Refusal", "Tree", "Znode", "batches"]

SET_OVERHEAD = 200
CREATE_OVERHEAD = 1000
"""Bytes that a put may take beside its path and data: the hosts' chroot, and an ACL."""


class Znode(NamedTuple):
    """What was read."""

    data: bytes
    version: int


class Put(NamedTuple):
    """What is to be written, and over which version; None: there must be no such znode yet."""

    path: str
    data: bytes
    version: int | None

    @property
    def size(self) -> int:
        """Bytes that it takes in a request, at most."""
        overhead = CREATE_OVERHEAD if self.version is None else SET_OVERHEAD
        return len(self.path) + len(self.data) + overhead


class Refusal(NamedTuple):
    """Why nothing was written: the first put that could not be, and its error."""

    at: int
    error: Exception


def batches(puts: Iterable[Put], limit: int) -> Iterator[list[Put]]:
    """Splits ``puts``, in order, so that each request stays below ``limit`` bytes.

    A server closes the connection on a request that is too large, which looks like an outage.
    """
    batch: list[Put] = []
    room = limit
    for put in puts:
        if batch and put.size > room:
            yield batch
            batch, room = [], limit
        batch.append(put)
        room -= put.size
    if batch:
        yield batch


class Tree:
    """The znodes of a ZooKeeper, through a bridge.

    Every method raises what `Bridge.ask` raises, and:

    Raises:
        StoreError: the servers refused; says what to do.
    """

    def __init__(self, bridge: Bridge) -> None:
        self._bridge = bridge

    async def read(self, paths: Sequence[str]) -> list[Znode | None]:
        """The znodes; None where there is none."""
        answers = await self._bridge.ask(_get, paths)
        return [_znode(answer, path) for answer, path in zip(answers, paths, strict=True)]

    async def write(self, puts: Sequence[Put]) -> Refusal | None:
        """Writes all in one step, or nothing."""
        (answer,) = await self._bridge.ask(_commit, [puts])
        if isinstance(answer, Exception):
            raise translate(answer, f"writing {puts[0].path} and {len(puts) - 1} more") from answer
        for index, result in enumerate(answer):
            # Those before the refused one are "rolled back", those after it "inconsistent".
            if isinstance(result, Exception) and not isinstance(result, RolledBackError):
                return Refusal(index, result)
        return None

    async def children(self, paths: Sequence[str]) -> list[Sequence[str]]:
        """The names below each znode; none where there is no such znode."""
        answers = await self._bridge.ask(_get_children, paths)
        return [_names(answer, path) for answer, path in zip(answers, paths, strict=True)]

    async def ensure(self, path: str) -> None:
        """Makes a znode and those above it, where they are missing."""
        (answer,) = await self._bridge.ask(_ensure, [path])
        _value(answer, path)

    async def prune(self, path: str, version: int) -> None:
        """Removes a znode, unless there is something below it or it has been written since."""
        (answer,) = await self._bridge.ask(_delete, [Put(path, b"", version)])
        if not (isinstance(answer, NotEmptyError) or is_conflict(answer)):
            _value(answer, path)


def _get(client: KazooClient, path: str) -> Any:
    return client.get_async(path)


def _get_children(client: KazooClient, path: str) -> Any:
    return client.get_children_async(path)


def _ensure(client: KazooClient, path: str) -> Any:
    return client.ensure_path_async(path)


def _delete(client: KazooClient, put: Put) -> Any:
    return client.delete_async(put.path, put.version)


def _commit(client: KazooClient, puts: Sequence[Put]) -> Any:
    request = client.transaction()
    for path, data, version in puts:
        if version is None:
            request.create(path, data)
        else:
            request.set_data(path, data, version)
    return request.commit_async()


def _znode(answer: Any, path: str) -> Znode | None:
    if isinstance(answer, NoNodeError):
        return None
    data, stat = _value(answer, path)
    return Znode(data, stat.version)


def _names(answer: Any, path: str) -> Sequence[str]:
    return () if isinstance(answer, NoNodeError) else list(_value(answer, path))


def _value(answer: Any, path: str) -> Any:
    if isinstance(answer, Exception):
        raise translate(answer, path) from answer
    return answer
