"""The file operations of a feed, and their implementation on POSIX file systems.

A reader sees a whole file or none. A file survives a power cut when `Files.sync` has returned for
its folder.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from abc import ABC, abstractmethod
from collections.abc import Container, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from consumer_sdk.errors import ConfigurationError
from consumer_sdk.spark_bridge.arrow import import_pyarrow
from consumer_sdk.spark_bridge.errors import TransientFeedError

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["Files", "PosixFiles", "create", "sync_directory", "translated", "write_durably"]


# No retry helps: no permission, no directory, no hard links.
_HOPELESS = {
    errno.EPERM,
    errno.EACCES,
    errno.EROFS,
    errno.ENOENT,
    errno.ENOTDIR,
    errno.EEXIST,
    errno.ENOTSUP,
}


class Files(ABC):
    """The files below one feed directory; names are relative to it, ``folder/name``.

    Every method but `sync` of a local one may raise OSError. Concurrency: any; an instance is
    pickled to Spark's executors.
    """

    __slots__ = ()

    @property
    @abstractmethod
    def directory(self) -> str:
        """The feed directory as messages name it."""

    @property
    def local(self) -> Path | None:
        """The directory, if the kernel's locks work on it; otherwise None."""
        return None

    @abstractmethod
    def prepare(self, folders: Iterable[str]) -> None:
        """Makes the folders.

        Raises:
            ConfigurationError: files cannot be made here as a feed needs it.
        """

    @abstractmethod
    def is_there(self) -> bool:
        """The directory exists."""

    @abstractmethod
    def names(self, folder: str) -> list[str]:
        """The names in a folder, in any order; none if there is no such folder."""

    @abstractmethod
    def read(self, name: str) -> bytes:
        """A whole file.

        Raises:
            FileNotFoundError: there is none.
        """

    @abstractmethod
    def buffer(self, name: str) -> pa.Buffer:
        """A whole file for Arrow, mapped into memory where that can be done."""

    @abstractmethod
    def add(self, name: str, data: bytes | memoryview) -> None:
        """Makes a file under a name that nobody else uses; on failure nothing is left of it."""

    @abstractmethod
    def claim(self, name: str, data: bytes, scratch: str) -> None:
        """Makes the file ``name``, if there is none. After any other error it may exist.

        Args:
            name: the name that other writers may claim too.
            data: its contents.
            scratch: a name in the same folder that nobody else uses.

        Raises:
            FileExistsError: somebody else was faster.
        """

    @abstractmethod
    def replace(self, name: str, data: bytes, scratch: str) -> None:
        """Makes the file, or puts this one in its place."""

    @abstractmethod
    def delete(self, name: str) -> None:
        """Deletes the file if it is there."""

    @abstractmethod
    def sync(self, folder: str) -> None:
        """Makes durable which files the folder has."""


class PosixFiles(Files):
    """A directory of a file system with hard links.

    Args:
        root: the directory.
        group_access: whether the folders that `prepare` makes are also for the group of the
            directory. A file is for whom its folder is for.
    """

    __slots__ = ("_group_access", "_root")

    def __init__(self, root: Path, *, group_access: bool = False) -> None:
        self._root = root
        self._group_access = group_access

    @property
    def directory(self) -> str:
        return str(self._root)

    @property
    def local(self) -> Path:
        return self._root

    def prepare(self, folders: Iterable[str]) -> None:
        mode = 0o770 if self._group_access else 0o700
        is_new = not self._root.exists()
        for name in folders:
            folder = self._root / name
            folder.mkdir(parents=True, exist_ok=True)
            _restrict(folder, mode)
        if is_new:
            _restrict(self._root, mode)
        sync_directory(self._root)

    def is_there(self) -> bool:
        return self._root.is_dir()

    def names(self, folder: str) -> list[str]:
        try:
            return os.listdir(self._root / folder)  # noqa: PTH208 - names are what is asked for
        except FileNotFoundError:
            return []

    def read(self, name: str) -> bytes:
        return (self._root / name).read_bytes()

    def buffer(self, name: str) -> pa.Buffer:
        with import_pyarrow().memory_map(str(self._root / name)) as source:
            return source.read_buffer()

    def add(self, name: str, data: bytes | memoryview) -> None:
        path = self._root / name
        write_durably(path, data)
        try:
            sync_directory(path.parent)
        except OSError:
            path.unlink(missing_ok=True)
            raise

    def claim(self, name: str, data: bytes, scratch: str) -> None:
        # O_EXCL alone would let a reader see half a file; rename would replace the winner's.
        draft = self._root / scratch
        write_durably(draft, data)
        try:
            os.link(draft, self._root / name)
        finally:
            draft.unlink(missing_ok=True)

    def replace(self, name: str, data: bytes, scratch: str) -> None:
        draft = self._root / scratch
        write_durably(draft, data)
        try:
            draft.replace(self._root / name)
        except OSError:
            draft.unlink(missing_ok=True)
            raise
        sync_directory(draft.parent)

    def delete(self, name: str) -> None:
        (self._root / name).unlink(missing_ok=True)

    def sync(self, folder: str) -> None:
        sync_directory(self._root / folder)


def create(path: Path, flags: int) -> int:
    """Opens ``path``, and gives a new file to those whom its folder is for, whatever the umask.

    Args:
        path: the file.
        flags: of `os.open`.

    Returns:
        the file descriptor.
    """
    group = path.parent.stat().st_mode & 0o060
    handle = os.open(path, flags | os.O_CLOEXEC, 0o600)
    if flags & os.O_CREAT and group:
        os.fchmod(handle, 0o600 | group)
    return handle


def write_durably(path: Path, data: bytes | memoryview) -> None:
    """Creates ``path``, which must not exist, with ``data``; on failure nothing is left of it."""
    handle = create(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
    try:
        try:
            _write_all(handle, memoryview(data))
            os.fsync(handle)
        finally:
            os.close(handle)
    except OSError:
        path.unlink(missing_ok=True)
        raise


def _restrict(folder: Path, mode: int) -> None:
    """Gives a folder its mode, and leaves the bit by which its files belong to its group."""
    found = folder.stat()
    wanted = mode | found.st_mode & stat.S_ISGID
    # Whoever is not its owner has no say.
    if stat.S_IMODE(found.st_mode) != wanted and found.st_uid == os.geteuid():
        folder.chmod(wanted)


def _write_all(handle: int, view: memoryview) -> None:
    while view:
        view = view[os.write(handle, view) :]


def sync_directory(path: Path) -> None:
    """Makes the directory's entries durable."""
    handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


@contextlib.contextmanager
def translated(directory: str, hopeless: Container[int | None] = _HOPELESS) -> Iterator[None]:
    """Turns an OSError of a write below ``directory`` into the SDK's own.

    Args:
        directory: as messages name it.
        hopeless: numbers of errors where no retry helps. None is, where the directory could be
            written before: a mount that is away looks like one that never was.
    """
    try:
        yield
    except OSError as error:
        if error.errno in hopeless:
            raise ConfigurationError(
                f"cannot write to the feed directory {directory}: {error}. It must be a directory "
                "with write permission, on a file system with hard links"
            ) from error
        raise TransientFeedError(
            f"writing to the feed directory {directory} failed: {error}"
        ) from error
