"""Feeds on file systems of fsspec, such as object stores.

A feed needs two properties: a file can be made *only if there is none* (S3's ``If-None-Match``,
GCS's generation match), and nobody sees half a file. Object stores with conditional puts have
both. Many others only seem to: fsspec's stock ``create`` looks first and writes then.
"""

from __future__ import annotations

import contextlib
import errno
import secrets
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from consumer_sdk.errors import ConfigurationError, MissingExtraError
from consumer_sdk.spark_bridge.arrow import import_pyarrow
from consumer_sdk.spark_bridge.feed.files import Files, PosixFiles

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["FsspecFiles", "files_on", "fsspec_files"]


_MARK = "feed"


class FsspecFiles(Files):
    """A directory of an fsspec file system that can create exclusively.

    File systems keep listings, and take from them that a file is not there: s3fs does not ask the
    store then. Other processes make files at any time, so a listing is dropped before it would be used.

    Uncommitted files of a writer that has died stay: without the kernel's locks nobody can tell
    that it is dead.

    Args:
        fs: the file system.
        root: the directory's path in it.
    """

    __slots__ = ("_fs", "_root")

    def __init__(self, fs: Any, root: str) -> None:
        self._fs = fs
        self._root = root.rstrip("/")

    @property
    def directory(self) -> str:
        return str(self._fs.unstrip_protocol(self._root))

    def prepare(self, folders: Iterable[str]) -> None:
        for name in folders:
            self._do("makedirs", self._path(name), exist_ok=True)
        self._probe(f"{self._root}/{secrets.token_hex(8)}.tmp")
        if not self.is_there():
            # Object stores have no empty folders, and a query may come before the first record.
            self._do("pipe_file", self._path(_MARK), b"")

    def is_there(self) -> bool:
        self._fs.invalidate_cache(self._root)
        return bool(self._do("isdir", self._root))

    def names(self, folder: str) -> list[str]:
        path = self._path(folder)
        self._fs.invalidate_cache(path)
        try:
            found = self._do("ls", path, detail=False)
        except FileNotFoundError:
            return []
        return [name.rstrip("/").rpartition("/")[2] for name in found]

    def read(self, name: str) -> bytes:
        # 1. This process lists the manifests. 2. Another one makes the next. 3. By the listing there is none,
        # while none can be made either: a writer would try for ever, and a query would see no news.
        path = self._path(name)
        self._fs.invalidate_cache(path.rpartition("/")[0])
        return bytes(self._do("cat_file", path))

    def buffer(self, name: str) -> pa.Buffer:
        return import_pyarrow().py_buffer(self.read(name))

    def add(self, name: str, data: bytes | memoryview) -> None:
        self._do("pipe_file", self._path(name), bytes(data))

    def claim(self, name: str, data: bytes, scratch: str) -> None:  # noqa: ARG002 - puts are whole
        self._do("pipe_file", self._path(name), data, mode="create")

    def replace(self, name: str, data: bytes, scratch: str) -> None:  # noqa: ARG002 - puts are whole
        self._do("pipe_file", self._path(name), data)

    def delete(self, name: str) -> None:
        # Another writer may be faster.
        with contextlib.suppress(FileNotFoundError):
            self._do("rm_file", self._path(name))

    def sync(self, folder: str) -> None:
        """Nothing to do: a put that has returned is durable."""

    def _probe(self, path: str) -> None:
        try:
            self._fs.pipe_file(path, b"", mode="create")
            self._fs.pipe_file(path, b"", mode="create")
        except FileExistsError:
            return
        except (ValueError, NotImplementedError, TypeError) as error:
            raise _not_exclusive(self._fs, str(error)) from error
        finally:
            if self._fs.exists(path):
                self._fs.rm_file(path)
        raise _not_exclusive(self._fs, "it made the same file twice")

    def _do(self, method: str, *args: Any, **options: Any) -> Any:
        """Calls the file system; stores have errors of their own (botocore's are no OSErrors)."""
        try:
            return getattr(self._fs, method)(*args, **options)
        except OSError:
            raise
        except Exception as error:
            text = f"{type(self._fs).__name__}.{method}: {error!r}"
            raise OSError(errno.EIO, text) from error

    def _path(self, name: str) -> str:
        return f"{self._root}/{name}"


def files_on(fs: Any, path: str) -> Files:
    """The files of a feed in ``path`` of an fsspec file system, or of a pyarrow one.

    Raises:
        ConfigurationError: it cannot make a file only if there is none.
    """
    fs = _as_fsspec(fs)
    root = str(fs._strip_protocol(path))  # noqa: SLF001 - fsspec's own way to take URLs as paths
    if not root.strip("/"):
        raise ConfigurationError(f"SparkFeed(path): {path!r} is not the path of a directory")
    if _is_local(fs):
        # fsspec would show others files that are half written, and sync nothing.
        return PosixFiles(Path(root))
    _check_create(fs)
    return FsspecFiles(fs, root)


def fsspec_files(path: str, protocol: str) -> Files:
    """The same for a file system by its name, with the options that fsspec's configuration has.

    Raises:
        ConfigurationError: there is none of that name, or it cannot do what a feed needs.
        MissingExtraError: fsspec is not installed.
    """
    fsspec = _import_fsspec()
    try:
        fs = fsspec.filesystem(protocol)
    except (ImportError, ValueError) as error:
        raise ConfigurationError(f"the file system of feed+{protocol}://: {error}") from error
    return files_on(fs, path)


def _as_fsspec(fs: Any) -> Any:
    fsspec = _import_fsspec()
    if isinstance(fs, fsspec.AbstractFileSystem):
        return fs
    from pyarrow.fs import FileSystem, LocalFileSystem

    if isinstance(fs, LocalFileSystem):
        return fsspec.filesystem("file")
    if isinstance(fs, FileSystem):
        raise _not_exclusive(fs, "pyarrow's file systems always replace what is there")
    raise ConfigurationError(f"SparkFeed(filesystem={fs!r}): use one of fsspec's file systems")


def _is_local(fs: Any) -> bool:
    from fsspec.implementations.local import LocalFileSystem

    return isinstance(fs, LocalFileSystem)


def _check_create(fs: Any) -> None:
    base = _import_fsspec().AbstractFileSystem
    inner = getattr(fs, "fs", None)
    if isinstance(inner, base):
        _check_create(inner)  # a wrapper, such as DirFileSystem, is as good as what is in it
    if type(fs).pipe_file is base.pipe_file and not fs.async_impl:
        raise _not_exclusive(fs, "its pipe_file(mode='create') looks first and writes then")


def _not_exclusive(fs: Any, why: str) -> ConfigurationError:
    return ConfigurationError(
        f"SparkFeed(filesystem={type(fs).__name__}): this file system cannot create a file only "
        f"if there is none ({why}), without which two writers could give one number to different "
        "records. Use one that can, such as s3fs or gcsfs on a store with conditional puts, or a "
        "directory that all machines mount"
    )


def _import_fsspec() -> Any:
    try:
        import fsspec
    except ModuleNotFoundError as error:
        raise MissingExtraError("fsspec", "spark-fs") from error
    return fsspec
