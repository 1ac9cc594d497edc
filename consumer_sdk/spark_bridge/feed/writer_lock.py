"""Tells live writers of a feed directory from dead ones, and clears up after the dead.

A writer holds an exclusive ``flock`` on a file of its own, whose name begins the name of every
file that it makes; the kernel releases it however the process ends. Whoever gets the lock of
another one's file therefore knows that it is dead and can commit nothing any more.
"""

from __future__ import annotations

import fcntl
import os
import secrets
from collections.abc import Iterable
from pathlib import Path

from consumer_sdk.spark_bridge.feed.log.files import create

__all__ = ["DeadWriters", "WriterLock"]

_SUFFIX = ".lock"


class WriterLock:
    """A unique writer name, locked until `release` or the end of the process."""

    __slots__ = ("_handle", "_path", "name")

    def __init__(self, folder: Path) -> None:
        while True:
            self.name = secrets.token_hex(8)
            self._path = folder / f"{self.name}{_SUFFIX}"
            handle = _lock(self._path, os.O_CREAT | os.O_EXCL)
            if handle is not None:
                self._handle = handle
                return

    def release(self) -> None:
        """Gives the name up."""
        self._path.unlink(missing_ok=True)
        os.close(self._handle)


class DeadWriters:
    """The writers whose process has ended, held until `bury` or `release`.

    Args:
        folder: where the locks are.
        litter: folders with files that the writers may have left uncommitted.
    """

    __slots__ = ("_left", "_locks")

    def __init__(self, folder: Path, litter: Iterable[Path]) -> None:
        self._locks: dict[Path, int] = {}
        for path in folder.glob(f"*{_SUFFIX}"):
            handle = _lock(path, 0)
            if handle is not None:
                self._locks[path] = handle
        names = {path.stem for path in self._locks}
        self._left = {
            path.name: path
            for place in litter
            for path in place.iterdir()
            if path.name.partition("-")[0] in names
        }

    def keep(self, name: str) -> None:
        """The file ``name`` is committed."""
        self._left.pop(name, None)

    def bury(self) -> None:
        """Deletes what they left and nobody committed."""
        for path in self._left.values():
            path.unlink(missing_ok=True)
        for path in self._locks:
            path.unlink(missing_ok=True)

    def release(self) -> None:
        """Gives the locks back."""
        for handle in self._locks.values():
            os.close(handle)
        self._locks.clear()


def _lock(path: Path, flags: int) -> int | None:
    """An exclusively locked handle of ``path``, or None if it is another's, or gone."""
    try:
        handle = create(path, os.O_RDWR | flags)
    except FileNotFoundError:
        return None
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(handle)
        return None
    if _is(path, handle):
        return handle
    # Between open and flock somebody took it for a dead writer's, and deleted it.
    os.close(handle)
    return None


def _is(path: Path, handle: int) -> bool:
    try:
        return os.path.samestat(path.stat(), os.fstat(handle))
    except FileNotFoundError:
        return False
