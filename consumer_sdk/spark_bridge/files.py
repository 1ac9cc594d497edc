"""Durable file operations; each returns when the change would survive a power cut."""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Iterator
from pathlib import Path

from consumer_sdk.errors import ConfigurationError
from consumer_sdk.spark_bridge.errors import TransientFeedError

__all__ = ["sync_directory", "translated", "write_durably"]

# No retry mends these: no permission, no directory, no hard links.
_HOPELESS = {
    errno.EPERM,
    errno.EACCES,
    errno.EROFS,
    errno.ENOENT,
    errno.ENOTDIR,
    errno.EEXIST,
    errno.ENOTSUP,
}


def write_durably(path: Path, data: bytes | memoryview) -> None:
    """Creates ``path``, which must not exist, with ``data``; on failure nothing is left of it."""
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
    try:
        try:
            _write_all(handle, memoryview(data))
            os.fsync(handle)
        finally:
            os.close(handle)
    except OSError:
        path.unlink(missing_ok=True)
        raise


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
def translated(path: Path) -> Iterator[None]:
    """Turns an OSError of a write below ``path`` into the SDK's own."""
    try:
        yield
    except OSError as error:
        if error.errno in _HOPELESS:
            raise ConfigurationError(
                f"cannot write to the feed directory {path}: {error}. It must be a directory with "
                "write permission, on a file system with hard links"
            ) from error
        raise TransientFeedError(f"writing to the feed directory {path} failed: {error}") from error
