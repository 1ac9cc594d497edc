"""A store in a SQLite file: durable on one host, nothing to install or to run."""

from __future__ import annotations

import os
import secrets
import socket
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import TypeVar, final

from consumer_sdk.abc import StoreItem
from consumer_sdk.errors import StoreError
from consumer_sdk.leases.backend import LeaseBackend, Reading
from consumer_sdk.leases.stores import LeasingStore, reopen
from consumer_sdk.records import Assignment, Outcome, Partition
from consumer_sdk.stores.fencing import Claims
from consumer_sdk.stores.sqlite import rows
from consumer_sdk.stores.sqlite.file import Database, FileGoneError, SqliteThread

__all__ = ["LocalStore"]

T = TypeVar("T")


@final
class LocalStore(LeasingStore):
    """Checkpoints in a SQLite file on a local disk.

    A checkpoint is durable when `save` says so, whatever is killed (write-ahead log,
    ``synchronous=FULL``). All partitions of a save are one transaction. Several processes on the
    host may share the file, also with `LocalDeadLetters`. Network file systems are not supported.
    The table ``checkpoints`` is for people too: its text is the checkpoint's JSON.

    The file is created with mode 0600. If the disk is full or the file is locked, `save` answers
    RETRY, and other methods raise a `TransientStoreError`. A checkpoint that is too large is a
    RETRY with a `StoreError`, until it has become smaller.

    Args:
        path: the file. It is created if it is missing; its directory is not.
        busy_timeout: seconds to wait while another process writes.

    Raises:
        ConfigurationError: the path is empty, or the timeout is no positive number.

    Cancellation: of any method leaves the file whole; a save takes effect nevertheless.
    Concurrency: used from another event loop or a forked child, `ConsumerClosedError`.
    """

    def __init__(self, path: str | os.PathLike[str], *, busy_timeout: float = 5.0) -> None:
        self._thread = SqliteThread(
            path, busy_timeout=busy_timeout, name="consumer_sdk.stores.sqlite.store"
        )
        self._claims = Claims()

    def __repr__(self) -> str:
        return f"LocalStore({str(self._thread.path)!r})"

    async def open(self) -> None:
        """Opens or makes the file, checks it for damage, and that it can be written.

        Raises:
            StoreError: it cannot be used, is damaged, or belongs to another program or to a
                newer version of this one. The message says what to do; nothing was changed.
            ConsumerClosedError: it is open in another event loop.
        """
        await self._thread.open(rows.check)

    async def claim(
        self, group: str, assignments: Sequence[Assignment]
    ) -> Mapping[Assignment, str | Outcome | None]:
        """Reads the checkpoints and takes the fence; see `CheckpointStore.claim`."""
        writer = f"{socket.gethostname()}/{os.getpid()}/{secrets.token_hex(8)}"
        taken = await self._thread.run(partial(rows.claim, group, list(assignments), writer))
        answer: dict[Assignment, str | Outcome | None] = {}
        for assignment, result in taken.items():
            if isinstance(result, Outcome):
                answer[assignment] = result
            else:
                stamp, answer[assignment] = result
                self._claims.remember(group, assignment, stamp)
        return answer

    async def save(self, group: str, items: Sequence[StoreItem]) -> list[Outcome]:
        """Writes all of them in one transaction; see `CheckpointStore.save`.

        Raises:
            ConsumerClosedError: the store is not open here.
            StoreError: the file was deleted or replaced, so that nothing can be saved any more.
        """
        plan = self._claims.plan(group, items, self.max_size)
        try:
            return await self._thread.run(partial(rows.save, group, plan))
        except FileGoneError:
            raise
        except StoreError as error:
            return [s if isinstance(s, Outcome) else Outcome.retry(error) for s in plan]

    async def forget(self, assignments: Sequence[Assignment]) -> None:
        """A later save of these is FENCED."""
        self._claims.forget(assignments)

    async def peek(
        self, group: str, partitions: Sequence[Partition]
    ) -> Mapping[Partition, str | None]:
        """Reads without claiming.

        Raises:
            StoreError: the file cannot be read.
        """
        return await self._thread.run(partial(rows.peek, group, list(partitions)))

    async def list(self, group: str) -> Sequence[Partition]:
        """The partitions that have a checkpoint in the group, in order.

        Raises:
            StoreError: the file cannot be read.
        """
        return await self._thread.run(partial(rows.names, group))

    async def delete(self, group: str, partitions: Iterable[Partition]) -> None:
        """Deletes checkpoints, keeping their fences; then reopens their leases.

        Raises:
            StoreError: nothing was deleted, or leases may not be open yet: delete them again.
        """
        gone = tuple(partitions)
        await self._thread.run(partial(rows.delete, group, gone))
        await reopen(self, group, gone)

    async def purge(self, group: str, checkpoints: Mapping[Partition, str]) -> None:
        """Removes checkpoints with their fences; see `CheckpointStore.purge`.

        Raises:
            StoreError: nothing was removed.
        """
        await self._thread.run(partial(rows.purge, group, dict(checkpoints)))

    async def pin(self, group: str, stream: str, start: str) -> str:
        """Creates the group's resolved start if absent; returns the one that is stored.

        Raises:
            StoreError: nothing was stored.
        """
        return await self._thread.run(partial(rows.pin, group, stream, start))

    async def pins(self, group: str) -> Mapping[str, str]:
        """The resolved starts of the group, by stream.

        Raises:
            StoreError: the file cannot be read.
        """
        return await self._thread.run(partial(rows.pins, group))

    async def unpin(self, group: str, stream: str) -> bool:
        """Deletes the group's resolved start, also one that cannot be read.

        Raises:
            StoreError: nothing was deleted.
        """
        return await self._thread.run(partial(rows.unpin, group, stream))

    def _lease_backend(self, group: str, stream: str) -> LeaseBackend:
        return _LeaseRows(self._thread, group, stream)

    async def leased_streams(self, group: str) -> Sequence[str]:
        """The streams of which the group has leases, in order.

        Raises:
            StoreError: the file cannot be read.
        """
        return await self._thread.run(partial(rows.leased_streams, group))

    async def aclose(self) -> None:
        """Finishes what is under way and closes the file. Idempotent and bounded."""
        await self._thread.aclose()


class _LeaseRows(LeaseBackend):
    """The leases of one group and stream, in tables that are made when they are first used.

    Args:
        thread: of a file that is open.
    """

    __slots__ = ("_has_tables", "_key", "_thread")

    def __init__(self, thread: SqliteThread, group: str, stream: str) -> None:
        self._thread = thread
        self._key = group, stream
        self._has_tables = False

    async def read(self) -> Reading:
        return await self._run(partial(rows.read_leases, self._key))

    async def replace(self, version: int, text: str) -> bool:
        return await self._run(partial(rows.replace_leases, self._key, version, text))

    async def renew(self, member: str, count: int, dead: Mapping[str, int]) -> None:
        await self._run(partial(rows.renew, self._key, member, count, dict(dead)))

    async def leave(self, member: str) -> None:
        await self._run(partial(rows.leave, self._key, member))

    async def _run(self, work: Callable[[Database], T]) -> T:
        if not self._has_tables:  # a file may be older than leases are
            await self._thread.run(rows.make_lease_tables)
            self._has_tables = True
        return await self._thread.run(work)
