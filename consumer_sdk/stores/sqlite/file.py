"""The store's SQLite file, as its one thread uses it: opening, checking, transactions, errors.

Rules:

- Nothing is written to a file before it is known to be the store's (``application_id``) and of a
  version that this code can write (``user_version``): another program's database stays as it is.
- A file that the store makes is readable by its owner alone; SQLite gives ``-wal`` and ``-shm`` the
  same mode. The mode of a file that exists is its owner's choice.
- Every write is one ``BEGIN IMMEDIATE`` transaction, so that processes take turns instead of
  failing half-way. With ``synchronous=FULL`` it is on disk when ``COMMIT`` returns.
- What is written to a file that was deleted or replaced while open, nobody can read. So every
  transaction first checks that the path still leads to the open file.
"""

from __future__ import annotations

import errno
import os
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from consumer_sdk.errors import StoreError, TransientStoreError

__all__ = ["LOST", "Database", "FileGoneError", "translate"]

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


APPLICATION_ID = 0x63736462  # "csdb"
SCHEMA_VERSION = 1

SCHEMA = (
    """CREATE TABLE checkpoints (
        "group" TEXT NOT NULL, partition TEXT NOT NULL,
        writer TEXT NOT NULL, fence INTEGER, serial INTEGER NOT NULL,
        text TEXT, updated_at TEXT,
        PRIMARY KEY ("group", partition))""",
    """CREATE TABLE pins (
        "group" TEXT NOT NULL, stream TEXT NOT NULL, start TEXT NOT NULL,
        PRIMARY KEY ("group", stream))""",
    """CREATE TABLE dead_letters (
        id INTEGER PRIMARY KEY AUTOINCREMENT,
        "group" TEXT NOT NULL, stream TEXT NOT NULL, partition TEXT NOT NULL,
        position TEXT NOT NULL, digest BLOB NOT NULL,
        error TEXT NOT NULL, error_type TEXT NOT NULL, attempts INTEGER NOT NULL,
        failed_at REAL NOT NULL, timestamp INTEGER,
        key BLOB, value BLOB, headers TEXT NOT NULL,
        UNIQUE ("group", stream, partition, position, digest))""",
    f"PRAGMA application_id = {APPLICATION_ID}",
    f"PRAGMA user_version = {SCHEMA_VERSION}",
)

WAL_TRIES = 20

_making_files = threading.Lock()
"""Closing any descriptor of a file drops all locks that this process holds on it (POSIX), so
nobody may open the file between its making and the closing of the maker's descriptor."""


class Database:
    """An open file of ours. Belongs to the thread that made it.

    Args:
        path: absolute, so that SQLite's own special names mean nothing.
        busy_timeout: seconds to wait for other processes.

    Raises:
        StoreError: the file cannot be used; says what to do.
    """

    def __init__(self, path: Path, *, busy_timeout: float) -> None:
        # A link to a file that is missing: it is made by us, in its own place, with our mode.
        self.path = path = Path(os.path.realpath(path))
        with self.translated():
            _check_place(path)
            _make_file(path)
            self.connection = sqlite3.connect(path, timeout=busy_timeout, isolation_level=None)
            try:
                self._prepare()
            except BaseException:
                self.connection.close()
                raise

    def _prepare(self) -> None:
        self._inode = _inode(self.path)
        self.connection.execute("PRAGMA synchronous = FULL")
        self.connection.execute("BEGIN")  # one view of a file that others may be making just now
        is_ours = self._is_ours()
        self._rollback()
        if not is_ours:
            self._make_schema()
        self._enter_wal()
        with self.transaction():
            pass  # it can be written

    def _is_ours(self) -> bool:
        """False: there is nothing in it yet."""
        application, version, tables = (
            self.connection.execute(query).fetchone()[0]
            for query in (
                "PRAGMA application_id",
                "PRAGMA user_version",
                "SELECT count(*) FROM sqlite_master",
            )
        )
        if application == version == tables == 0:
            return False
        if application != APPLICATION_ID:
            raise StoreError(f"{self.path} is another program's database: choose another path")
        if version != SCHEMA_VERSION:
            raise StoreError(
                f"{self.path} was written in version {version} of the format, this consumer_sdk "
                f"knows version {SCHEMA_VERSION}: upgrade it, or choose another path"
            )
        return True

    def _make_schema(self) -> None:
        with self.transaction() as connection:
            if not self._is_ours():  # another process may have been faster
                for statement in SCHEMA:
                    connection.execute(statement)

    def _enter_wal(self) -> None:
        """Needs the file for itself for a moment, and SQLite does not always wait for that."""
        for tries_left in reversed(range(WAL_TRIES)):
            try:
                (mode,) = self.connection.execute("PRAGMA journal_mode = WAL").fetchone()
            except sqlite3.OperationalError as error:
                if not tries_left or error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY:
                    raise
                self.connection.execute("BEGIN EXCLUSIVE")  # waits
                self.connection.execute("ROLLBACK")
            else:
                break
        if mode != "wal":
            raise StoreError(
                f"{self.path} is on a file system without shared memory: choose a local disk"
            )

    def check(self, table: str) -> None:
        """Reads a whole table and looks for damage."""
        with self.translated():
            (verdict,) = self.connection.execute(f"PRAGMA quick_check({table})").fetchone()
        if verdict != "ok":
            raise StoreError(f"{self.path}: {verdict}: {LOST}")

    @contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        """For statements that only read; writers do not disturb them."""
        with self.translated():
            self._check_inode()
            yield self.connection

    @contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        """All of the block is written, or none of it.

        Raises:
            StoreError: nothing was written.
        """
        with self.translated():
            self._check_inode()
            self._rollback()  # what an earlier failure may have left open
            self.connection.execute("BEGIN IMMEDIATE")
            try:
                yield self.connection
                self.connection.execute("COMMIT")
            except BaseException:
                with suppress(sqlite3.Error):
                    self._rollback()
                raise

    def _rollback(self) -> None:
        if self.connection.in_transaction:
            self.connection.execute("ROLLBACK")

    def _check_inode(self) -> None:
        if _inode(self.path) != self._inode:
            raise FileGoneError(
                f"{self.path} was deleted or replaced while it was open: start the program anew"
            )

    @contextmanager
    def translated(self) -> Iterator[None]:
        """Turns SQLite's errors into ours."""
        try:
            yield
        except (sqlite3.Error, OSError) as error:
            raise translate(error, self.path) from error

    def close(self) -> None:
        """Closes it; what was committed stays, whatever happens here."""
        with suppress(sqlite3.Error):
            self._rollback()
        with suppress(sqlite3.Error):
            self.connection.close()


def _inode(path: Path) -> tuple[int, int] | None:
    try:
        status = path.stat()
    except FileNotFoundError:
        return None
    return status.st_dev, status.st_ino


def _check_place(path: Path) -> None:
    """Says in words what SQLite calls "unable to open database file"."""
    if path.is_dir():
        raise StoreError(f"{path} is a directory: give the path of a file")
    if not path.parent.is_dir():
        raise StoreError(
            f"{path} cannot be made: {path.parent} is "
            + ("no directory" if path.parent.exists() else "missing: make that directory first")
        )


def _make_file(path: Path) -> None:
    with _making_files, suppress(FileExistsError):
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
