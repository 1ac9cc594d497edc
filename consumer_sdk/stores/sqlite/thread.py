"""The bridge between an event loop and a SQLite file: one thread with one queue.

A call is queued before its first await, and runs to its end even if its caller is cancelled:
cancelling only stops the waiting. Calls take effect in the order in which they were made. The
thread refers to the queue alone. So a bridge that nobody closed can be garbage-collected; it then
warns (`ResourceWarning`) and ends its thread.
"""

from __future__ import annotations

import asyncio
import logging
import os
import threading
import warnings
from collections.abc import Callable
from pathlib import Path
from queue import SimpleQueue
from typing import Any, TypeVar

from consumer_sdk.errors import ConfigurationError, TransientStoreError
from consumer_sdk.options import PATH, SECONDS, check_options
from consumer_sdk.stores.opening import is_left_over, is_of_this_process, opened_here
from consumer_sdk.stores.sqlite.file import Database

__all__ = ["OWN", "SqliteThread"]

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
