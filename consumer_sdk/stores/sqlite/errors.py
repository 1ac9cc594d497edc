"""What went wrong with our SQLite file, and what to do about it."""

from __future__ import annotations

import errno
import sqlite3
from pathlib import Path

from consumer_sdk.errors import StoreError, TransientStoreError

__all__ = ["LOST", "FileGoneError", "translate"]

_BUSY = "another program keeps it locked; look for a backup, or a shell with a transaction open"
LOST = (
    "it is damaged, or no SQLite database: move it away with its -wal and -shm, or put a copy "
    "back. Without it, consumers start at the broker's committed position or at start=…"
)
_NO_PERMISSION = "let this user write the file and its directory, and look for a read-only disk"

_REMEDIES: dict[int, tuple[type[StoreError], str]] = {
    sqlite3.SQLITE_BUSY: (TransientStoreError, _BUSY),
    sqlite3.SQLITE_LOCKED: (TransientStoreError, _BUSY),
    sqlite3.SQLITE_FULL: (TransientStoreError, "the disk is full: free some space"),
    sqlite3.SQLITE_IOERR: (
        TransientStoreError,
        "the disk failed, or is full, or a limit on file sizes was met: see the system's log",
    ),
    sqlite3.SQLITE_NOMEM: (TransientStoreError, "there is no memory left"),
    sqlite3.SQLITE_INTERRUPT: (TransientStoreError, "it was closed meanwhile"),
    sqlite3.SQLITE_CORRUPT: (StoreError, LOST),
    sqlite3.SQLITE_NOTADB: (StoreError, LOST),
    sqlite3.SQLITE_READONLY: (StoreError, _NO_PERMISSION),
    sqlite3.SQLITE_CANTOPEN: (StoreError, _NO_PERMISSION),
    sqlite3.SQLITE_PERM: (StoreError, _NO_PERMISSION),
    sqlite3.SQLITE_AUTH: (StoreError, _NO_PERMISSION),
}

_PERMISSION_ERRORS = (errno.EACCES, errno.EPERM, errno.EROFS)


class FileGoneError(StoreError):
    """The file was deleted or replaced while it was open; no retry brings it back."""


def translate(error: sqlite3.Error | OSError, path: Path) -> StoreError:
    """An error of SQLite, or of the file system, as ours; transient where it may pass."""
    if isinstance(error, OSError):
        remedy = _NO_PERMISSION if error.errno in _PERMISSION_ERRORS else "choose another path"
        return StoreError(f"{path}: {error.strerror}: {remedy}")
    code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & 0xFF
    kind, remedy = _REMEDIES.get(code, (StoreError, "not expected from SQLite here"))
    return kind(f"{path}: {error}: {remedy}")
