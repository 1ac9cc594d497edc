"""The store's SQLite file, and its one thread: opening, checking, transactions, errors.

Rules:

- Nothing is written to a file before it is known to be the store's (``application_id``) and of a
  version that this code can write (``user_version``): another program's database stays as it is.
- A file that the store makes is readable by its owner alone; SQLite gives ``-wal`` and ``-shm`` the
  same mode. The mode of a file that exists is its owner's choice.
- Every write is one ``BEGIN IMMEDIATE`` transaction, so that processes take turns instead of
  failing half-way. With ``synchronous=FULL`` it is on disk when ``COMMIT`` returns.
- What is written to a file that was deleted or replaced while open, nobody can read. So every
  transaction first checks that the path still leads to the open file.

`SqliteThread` is the bridge between an event loop and the file: one thread with one queue. A call is queued before its
first await, and runs to its end even if its caller is cancelled: cancelling only stops the waiting. Calls take effect in
the order in which they were made. The thread refers to the queue alone. So a bridge that nobody closed can be
garbage-collected; it then warns (`ResourceWarning`) and ends its thread.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import sqlite3
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from queue import SimpleQueue
from typing import Any, TypeVar

from consumer_sdk.errors import ConfigurationError, StoreError, TransientStoreError
from consumer_sdk.options import PATH, SECONDS, check_options
from consumer_sdk.stores.opening import is_left_over, is_of_this_process, opened_here

__all__ = ["LOST", "OWN", "Database", "FileGoneError", "SqliteThread", "translate"]

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


# -- the thread that has the file ------------------------------------------------------------------

T = TypeVar("T")

OWN = {"path": PATH, "busy_timeout": SECONDS}
"""What the options take."""

CLOSING_MARGIN = 5.0
"""Seconds that closing may take beyond the busy timeout."""

log = logging.getLogger(__name__)


class _Job:
    """A call on its way to the thread, and its answer on the way back."""

    __slots__ = ("_loop", "answer", "work")

    def __init__(self, work: Callable[[Database], Any] | None) -> None:
        self._loop = asyncio.get_running_loop()
        self.answer: asyncio.Future[Any] = self._loop.create_future()
        self.work = work

    def done(self, result: Any) -> None:
        self._post(self.answer.set_result, result)

    def failed(self, error: BaseException) -> None:
        self._post(self.answer.set_exception, error)

    def _post(self, settle: Callable[[Any], None], value: Any) -> None:
        try:
            self._loop.call_soon_threadsafe(_settle, self.answer, settle, value)
        except RuntimeError:  # the loop is closed: nobody waits any more
            log.debug("an answer came after its event loop was closed")


def _settle(answer: asyncio.Future[Any], settle: Callable[[Any], None], value: Any) -> None:
    if not answer.done():  # the caller was cancelled
        settle(value)


class _Session:
    """One open file, one thread."""

    def __init__(self, name: str, connect: Callable[[], Database]) -> None:
        self.loop = asyncio.get_running_loop()
        self.pid = os.getpid()
        self._jobs: SimpleQueue[_Job | None] = SimpleQueue()
        self._database: Database | None = None
        self._is_given_up = False
        self.opened = _Job(None)
        threading.Thread(target=self._serve, args=(connect,), name=name, daemon=True).start()

    def ask(self, work: Callable[[Database], T]) -> asyncio.Future[T]:
        job = _Job(work)
        self._jobs.put(job)
        return job.answer

    def stop(self) -> None:
        """Lets the thread end after what is queued."""
        self._jobs.put(None)

    async def aclose(self, patience: float) -> None:
        last = _Job(None)
        self._jobs.put(last)
        try:
            async with asyncio.timeout(patience):
                await last.answer
        except TimeoutError:
            log.warning("SQLite did not answer for %s s: its thread is given up", patience)
            self._give_up()

    def _give_up(self) -> None:
        self._is_given_up = True
        if self._database is not None:
            self._database.connection.interrupt()

    def _serve(self, connect: Callable[[], Database]) -> None:
        try:
            self._database = database = connect()
        except BaseException as error:  # noqa: BLE001 - it belongs to who waits for the opening
            self.opened.failed(error)
            return
        self.opened.done(None)
        last = self._work(database)
        database.close()
        if last is not None:
            last.done(None)

    def _work(self, database: Database) -> _Job | None:
        while (job := self._jobs.get()) is not None and job.work is not None:
            self._answer(job, job.work, database)
            job = None  # holds no caller while it waits
        return job

    def _answer(self, job: _Job, work: Callable[[Database], Any], database: Database) -> None:
        if self._is_given_up:
            closed = f"{database.path} was closed before this was written"
            job.failed(TransientStoreError(closed))
            return
        try:
            job.done(work(database))
        except BaseException as error:  # noqa: BLE001 - it belongs to who waits for the answer
            job.failed(error)


class SqliteThread:
    """A SQLite file that an event loop can use without blocking.

    Args:
        path: the file; made when it is missing, its directory is not.
        busy_timeout: seconds to wait for other processes that write the file.
        name: what the thread is called.

    Raises:
        ConfigurationError: the path is empty, or the timeout is no positive number.

    Concurrency: belongs to the event loop and process that opened it; elsewhere a call is a
    `ConsumerClosedError`. Several objects, and several processes on one host, may use one file.
    """

    def __init__(self, path: str | os.PathLike[str], *, busy_timeout: float, name: str) -> None:
        check_options(locals(), OWN)
        if "\0" in os.fspath(path):
            raise ConfigurationError(f"path={path!r}: give the path of a file, without NUL")
        self.path = Path(path).absolute()
        self._busy_timeout = busy_timeout
        self._name = name
        self._session: _Session | None = None

    async def open(self, check: Callable[[Database], None]) -> None:
        """Opens the file; does nothing where that was done before.

        Args:
            check: looks at the file, on its thread.

        Raises:
            StoreError: the file cannot be used; says what to do.
            ConsumerClosedError: it is open in another event loop.

        Cancellation: it is closed again.
        """
        if self._session is not None and not is_left_over(self._session):
            self._here()
            return
        path, timeout = self.path, self._busy_timeout
        session = _Session(self._name, lambda: _open(path, timeout, check))
        try:
            await session.opened.answer
        except BaseException:
            session.stop()
            raise
        if self._session is not None:  # its event loop is gone
            self._session.stop()
        self._session = session

    async def run(self, work: Callable[[Database], T]) -> T:
        """Calls ``work`` on the thread.

        Raises:
            StoreError: what became of it.
            ConsumerClosedError: it is closed, or open in another event loop or process.

        Cancellation: ``work`` is done nevertheless.
        """
        return await self._here().ask(work)

    async def aclose(self) -> None:
        """Finishes what is queued and closes the file. Idempotent, from any event loop.

        Takes no longer than the busy timeout and five seconds: what a disk that hangs has not
        written by then fails with a `TransientStoreError`.
        """
        session, self._session = self._session, None
        if session is not None and is_of_this_process(session):
            await session.aclose(self._busy_timeout + CLOSING_MARGIN)

    def _here(self) -> _Session:
        fork = ", and SQLite's locks do not survive that"
        return opened_here(self._session, self.path, fork=fork)

    def __del__(self) -> None:
        session: _Session | None = getattr(self, "_session", None)
        if session is not None and is_of_this_process(session):
            session.stop()
            warnings.warn(f"{self.path} was not closed", ResourceWarning, source=self, stacklevel=1)


def _open(path: Path, timeout: float, check: Callable[[Database], None]) -> Database:
    database = Database(path, busy_timeout=timeout)
    try:
        check(database)
    except BaseException:
        database.close()
        raise
    return database
