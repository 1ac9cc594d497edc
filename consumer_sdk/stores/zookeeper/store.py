"""A store in ZooKeeper: shared by many hosts, and outlives each of them."""

from __future__ import annotations

import asyncio
import os
import secrets
import socket
import warnings
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, final

from consumer_sdk.errors import MissingExtraError

try:
    import kazoo as _kazoo  # noqa: F401 - before any module that needs it
except ImportError as _error:
    raise MissingExtraError("kazoo", "zookeeper") from _error

from consumer_sdk.abc import StoreItem
from consumer_sdk.leases.backend import LeaseBackend
from consumer_sdk.leases.stores import LeasingStore, reopen
from consumer_sdk.options import check_options
from consumer_sdk.records import Assignment, Outcome, Partition
from consumer_sdk.stores.fencing import Claims, Write, not_held
from consumer_sdk.stores.opening import is_left_over, is_of_this_process, opened_here
from consumer_sdk.stores.zookeeper.bridge import Bridge
from consumer_sdk.stores.zookeeper.leases import LEASES, ZooKeeperLeaseBackend
from consumer_sdk.stores.zookeeper.options import LARGEST, OWN, client_maker
from consumer_sdk.stores.zookeeper.tree import (
    Tree,
    Znode,
    check_root,
    checkpoint_path,
    decode_znode,
    escape,
    unescape,
)
from consumer_sdk.stores.zookeeper.writing import (
    Claiming,
    Place,
    Saving,
    leave_tombstones,
    pin,
    pins,
    purge,
    unpin,
)

__all__ = ["ZooKeeperStore"]

ROOM = 48_000
"""Bytes of a request beside one checkpoint: both stay below the servers' limit of 1 048 575."""


@final
class ZooKeeperStore(LeasingStore):
    """Checkpoints in ZooKeeper, for consumers on any number of hosts.

    A checkpoint is the znode ``{root}/{group}/{stream}/{partition}``, names percent-encoded, its
    data one JSON object that a person can read. All partitions of a save are one request, or
    several if they exceed the servers' limit of 1 MiB. The znode's version and stamp refuse the
    writes of a former owner. A session is only a connection: a lost or expired one is replaced in
    the background, and ownership does not depend on it. With leases, others notice an owner's death
    when its session has expired, if that is sooner than the lease's ``duration``. So give a
    ``session_timeout`` that is not shorter than that.

    Without a connection, `save` answers RETRY after ``session_timeout`` seconds, and other methods
    raise `TransientStoreError`. The wait for a response is as long.

    Args:
        hosts: ``"zk1:2181,zk2:2181"``, optionally with a path that all other paths begin with.
        root: the znode below which everything is stored; the first write creates it.
        session_timeout: seconds; the servers keep it between 2 and 20 of their ticks.
        max_size: most bytes of a checkpoint's text. If ``jute.maxbuffer`` of the servers is below
            its default, give 48 000 less than it.
        client_options: for `kazoo.client.KazooClient`: ``auth_data``, ``default_acl``,
            ``sasl_options``, ``use_ssl``, ``ca``, ``certfile``, ``keyfile``…; and ``verify_hostname``:
            if False, a server's certificate may have another name.

    Raises:
        ConfigurationError: an option that cannot work.
        MissingExtraError: kazoo is not installed.

    Cancellation: of any method leaves each partition whole; a write may take effect nevertheless.
    Concurrency: used from another event loop or a forked child, `ConsumerClosedError`.
    """

    def __init__(
        self,
        hosts: str,
        *,
        root: str = "/consumer-sdk",
        session_timeout: float = 10.0,
        max_size: int = LARGEST,
        **client_options: Any,
    ) -> None:
        check_options(locals(), OWN)
        self._hosts = hosts
        self._root = check_root(root)
        self._make_client = client_maker(hosts, session_timeout, client_options)
        self._patience = session_timeout
        self.max_size = max_size
        self._limit = max_size + ROOM
        self._bridge: Bridge | None = None
        self._claims = Claims()
        self._places: dict[Assignment, Place] = {}
        self._saving = asyncio.Lock()

    def __repr__(self) -> str:
        return f"ZooKeeperStore({self._hosts!r}, root={self._root!r})"

    async def open(self) -> None:
        """Connects. The first write creates the root.

        A majority of the servers makes a session, so an opened store can be written, except for
        access rights: the first claim shows whether they suffice.

        Raises:
            TransientStoreError: the servers cannot be reached.
            StoreError: they refuse; says what to do.
            ConsumerClosedError: it is open in another event loop.
        """
        if self._bridge is not None and not is_left_over(self._bridge):
            self._tree()
            return
        bridge = Bridge(self._make_client, self._patience)
        try:
            await Tree(bridge).read([self._root])
        except BaseException:
            bridge.abandon()
            raise
        self._bridge, left_over = bridge, self._bridge
        self._saving = asyncio.Lock()
        if left_over is not None:
            left_over.abandon()

    async def claim(
        self, group: str, assignments: Sequence[Assignment]
    ) -> Mapping[Assignment, str | Outcome | None]:
        """Reads the checkpoints and takes the fence; see `CheckpointStore.claim`.

        Raises:
            StoreError: it is unknown which partitions are claimed: claim them again.
        """
        tree = self._tree()
        writer = f"{socket.gethostname()}/{os.getpid()}/{secrets.token_hex(8)}"
        places = {a: Place(self._path(group, a.partition), 0) for a in assignments}
        claiming = Claiming(tree, self._limit, writer, places)
        await claiming.run(assignments)
        for assignment, (stamp, place) in claiming.granted.items():
            self._claims.remember(group, assignment, stamp)
            self._places[assignment] = place
        return {a: claiming.answers[a] for a in assignments}

    async def save(self, group: str, items: Sequence[StoreItem]) -> list[Outcome]:
        """Writes all of them; see `CheckpointStore.save`.

        Raises:
            ConsumerClosedError: the store is not open here.
        """
        tree = self._tree()
        plan = self._claims.plan(group, items, self.max_size)
        async with self._saving:  # so that they take effect in the order of the calls
            outcomes = await self._save(tree, [s for s in plan if isinstance(s, Write)])
        return [s if isinstance(s, Outcome) else outcomes[s.assignment] for s in plan]

    async def _save(self, tree: Tree, writes: Sequence[Write]) -> Mapping[Assignment, Outcome]:
        held = [write for write in writes if write.assignment in self._places]
        saving = Saving(tree, self._limit, held, self._places)
        try:
            outcomes = await saving.run()
        finally:
            # Some may have been forgotten meanwhile, or while this waited for its turn.
            known = self._places.keys() & saving.places.keys()
            self._places.update({assignment: saving.places[assignment] for assignment in known})
        return {w.assignment: outcomes.get(w.assignment) or not_held() for w in writes}

    async def forget(self, assignments: Sequence[Assignment]) -> None:
        """A later save of these is FENCED."""
        self._claims.forget(assignments)
        for assignment in assignments:
            self._places.pop(assignment, None)

    async def peek(
        self, group: str, partitions: Sequence[Partition]
    ) -> Mapping[Partition, str | None]:
        """Reads without claiming.

        Raises:
            StoreError: they cannot be read.
        """
        paths = [self._path(group, partition) for partition in partitions]
        znodes = await self._tree().read(paths)
        texts = [_text(znode, path) for znode, path in zip(znodes, paths, strict=True)]
        return dict(zip(partitions, texts, strict=True))

    async def list(self, group: str) -> Sequence[Partition]:
        """The partitions that have a checkpoint in the group, in order.

        Raises:
            StoreError: they cannot be read.
        """
        tree, path = self._tree(), f"{self._root}/{escape(group)}"
        (streams,) = await tree.children([path])
        ids = await tree.children([f"{path}/{stream}" for stream in streams])
        found = [
            Partition(stream, id_)
            for element, elements in zip(streams, ids, strict=True)
            for stream in _names([element])
            for id_ in _names(elements)
        ]
        texts = await self.peek(group, found)
        return sorted(partition for partition, text in texts.items() if text is not None)

    async def delete(self, group: str, partitions: Iterable[Partition]) -> None:
        """Deletes checkpoints, keeping their fences, also what cannot be read; reopens their leases.

        Raises:
            StoreError: some may be left, or leases may not be open yet: delete them again.
        """
        gone = list(partitions)
        paths = [self._path(group, partition) for partition in gone]
        await leave_tombstones(self._tree(), self._limit, paths)
        await reopen(self, group, gone)

    async def purge(self, group: str, checkpoints: Mapping[Partition, str]) -> None:
        """Removes checkpoints with their fences; see `CheckpointStore.purge`.

        Raises:
            StoreError: some may be left: purge them again.
        """
        texts = {self._path(group, partition): text for partition, text in checkpoints.items()}
        await purge(self._tree(), texts)

    async def pin(self, group: str, stream: str, start: str) -> str:
        """Creates the group's resolved start if absent; returns the one that is stored.

        Raises:
            StoreError: it may be stored: pin it again.
        """
        return await pin(self._tree(), self._stream_path(group, stream), start)

    async def pins(self, group: str) -> Mapping[str, str]:
        """The resolved starts of the group, by stream.

        Raises:
            StoreError: they cannot be read.
        """
        return await pins(self._tree(), f"{self._root}/{escape(group)}")

    async def unpin(self, group: str, stream: str) -> bool:
        """Deletes the group's resolved start, also one that cannot be read.

        Raises:
            StoreError: it may be there still: unpin it again.
        """
        return await unpin(self._tree(), self._stream_path(group, stream))

    def _lease_backend(self, group: str, stream: str) -> LeaseBackend:
        return ZooKeeperLeaseBackend(
            self._open_bridge, self._stream_path(group, stream), self._limit
        )

    async def leased_streams(self, group: str) -> Sequence[str]:
        """The streams of which the group has leases, in order.

        Raises:
            StoreError: they cannot be read.
        """
        tree, path = self._tree(), f"{self._root}/{escape(group)}"
        (elements,) = await tree.children([path])
        znodes = await tree.read([f"{path}/{element}/{LEASES}" for element in elements])
        leased = [e for e, znode in zip(elements, znodes, strict=True) if znode is not None]
        return sorted(_names(leased))

    async def aclose(self) -> None:
        """Ends the session after what is under way. Idempotent, and bounded by five seconds."""
        bridge, self._bridge = self._bridge, None
        if bridge is not None and is_of_this_process(bridge):
            await bridge.aclose()

    def _path(self, group: str, partition: Partition) -> str:
        return checkpoint_path(self._root, group, partition)

    def _stream_path(self, group: str, stream: str) -> str:
        return f"{self._root}/{escape(group)}/{escape(stream)}"

    def _tree(self) -> Tree:
        return Tree(self._open_bridge())

    def _open_bridge(self) -> Bridge:
        return opened_here(self._bridge, self)

    def __del__(self) -> None:
        bridge: Bridge | None = getattr(self, "_bridge", None)
        if bridge is not None and is_of_this_process(bridge):
            with suppress(RuntimeError):  # the interpreter is going, and makes no more threads
                bridge.abandon()
            warnings.warn(f"{self!r} was not closed", ResourceWarning, source=self, stacklevel=1)


def _names(elements: Iterable[str]) -> Iterable[str]:
    """The names of what is ours."""
    names = (unescape(element) for element in elements)
    return (name for name in names if name is not None)


def _text(znode: Znode | None, path: str) -> str | None:
    return None if znode is None else decode_znode(znode.data, path)[1]
