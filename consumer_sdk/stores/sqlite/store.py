"""A store in a SQLite file: durable on one host, nothing to install or to run."""

from __future__ import annotations

import os
import secrets
import socket
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import final

from consumer_sdk.abc import CheckpointStore, Clock, Leases, StoreItem
from consumer_sdk.errors import StoreError
from consumer_sdk.leases.member import TableLeases, new_member, reopen
from consumer_sdk.records import Assignment, Outcome, Partition
from consumer_sdk.stores.fencing import Claims
from consumer_sdk.stores.sqlite import checkpoints as sqlite_checkpoints
from consumer_sdk.stores.sqlite.errors import FileGoneError
from consumer_sdk.stores.sqlite.leases import LocalLeasePlace, leased_streams
from consumer_sdk.stores.sqlite.thread import SqliteThread

__all__ = ["LocalStore"]


@final
class LocalStore(CheckpointStore):
    """Checkpoints in a SQLite file on a local disk.

    Durable when `save` says so (write-ahead log, ``synchronous=FULL``), whatever is killed;
    all partitions of a save are one transaction. Several processes on the host may share the
    file, also with `LocalDeadLetters`; network file systems are not supported. The table
    ``checkpoints`` is for people too: its text is the checkpoint's JSON.

    A file of its own is made with mode 0600. A full disk or a locked file is a RETRY outcome
    of `save` and a `TransientStoreError` of anything else; what is too large is a RETRY outcome
    with a `StoreError`, and stays one until the checkpoint has become smaller.

    Args:
        path: the file; it is made if missing, its directory is not.
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
        await self._thread.open(sqlite_checkpoints.check)

    async def claim(
        self, group: str, assignments: Sequence[Assignment]
    ) -> Mapping[Assignment, str | Outcome | None]:
        """Reads the checkpoints and takes the fence; see `CheckpointStore.claim`."""
        writer = f"{socket.gethostname()}/{os.getpid()}/{secrets.token_hex(8)}"
        taken = await self._thread.run(
            partial(sqlite_checkpoints.claim, group, list(assignments), writer)
        )
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
            return await self._thread.run(partial(sqlite_checkpoints.save, group, plan))
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
        return await self._thread.run(partial(sqlite_checkpoints.peek, group, list(partitions)))

    async def list(self, group: str) -> Sequence[Partition]:
        """The partitions that have a checkpoint in the group, in order.

        Raises:
            StoreError: the file cannot be read.
        """
        return await self._thread.run(partial(sqlite_checkpoints.names, group))

    async def delete(self, group: str, partitions: Iterable[Partition]) -> None:
        """Deletes checkpoints, keeping their fences; then reopens their leases.

        Raises:
            StoreError: nothing was deleted, or leases may not be open yet: delete them again.
        """
        gone = tuple(partitions)
        await self._thread.run(partial(sqlite_checkpoints.delete, group, gone))
        await reopen(self, group, gone)

    async def purge(self, group: str, checkpoints: Mapping[Partition, str]) -> None:
        """Removes checkpoints with their fences; see `CheckpointStore.purge`.

        Raises:
            StoreError: nothing was removed.
        """
        await self._thread.run(partial(sqlite_checkpoints.purge, group, dict(checkpoints)))

    async def pin(self, group: str, stream: str, start: str) -> str:
        """Creates the group's resolved start if absent; returns the one that is stored.

        Raises:
            StoreError: nothing was stored.
        """
        return await self._thread.run(partial(sqlite_checkpoints.pin, group, stream, start))

    async def pins(self, group: str) -> Mapping[str, str]:
        """The resolved starts of the group, by stream.

        Raises:
            StoreError: the file cannot be read.
        """
        return await self._thread.run(partial(sqlite_checkpoints.pins, group))

    async def unpin(self, group: str, stream: str) -> bool:
        """Deletes the group's resolved start, also one that cannot be read.

        Raises:
            StoreError: nothing was deleted.
        """
        return await self._thread.run(partial(sqlite_checkpoints.unpin, group, stream))

    def leases(
        self,
        group: str,
        stream: str,
        *,
        duration: float = 10.0,
        handover: float = 30.0,
        most: int | None = None,
        weight: int = 1,
        clock: Clock | None = None,
    ) -> Leases:
        """A new member of the group, for processes on this host; see `CheckpointStore.leases`."""
        return TableLeases(
            LocalLeasePlace(self._thread, group, stream),
            f"{self._thread.path}: the leases of {stream!r} in group {group!r}",
            new_member(),
            duration=duration,
            handover=handover,
            most=most,
            weight=weight,
            clock=clock,
        )

    async def leased_streams(self, group: str) -> Sequence[str]:
        """The streams of which the group has leases, in order.

        Raises:
            StoreError: the file cannot be read.
        """
        return await self._thread.run(partial(leased_streams, group))

    async def aclose(self) -> None:
        """Finishes what is under way and closes the file. Idempotent and bounded."""
        await self._thread.aclose()
