"""How Spark's plain calls reach a broker: one event loop for each process, and the connections in it.

Spark calls plain methods, which cannot await. `LoopThread` has an event loop in a thread of its own:

1. There is one such thread for each process. A forked child has none of its parent's threads, so it
   gets its own (`of_this_process`).
2. Nothing starts before the first call: Spark imports a source, and makes instances of it, in
   processes that never read.
3. Callers may have a running loop of their own (notebooks, UDFs). They block for the answer as for any
   other call, and their loop is not touched.

`Connections` keeps connections for a while, in that loop. Spark's Python workers serve many tasks, of
several queries, whose options may differ. So tasks share a connection if all of their options are the
same (`PullOptions.identity`), secrets included; this holds for the sink's too. No reader owns one,
because readers are pickled. When a task gets an error from a connection, later tasks get another one.
"""

from __future__ import annotations

import asyncio
import logging
import os
import queue
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Generator, Hashable
from concurrent.futures import Future
from contextlib import AbstractAsyncContextManager, aclosing, asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, Generic, Protocol, TypeVar

from consumer_sdk.errors import TransientAdapterError
from consumer_sdk.range_reads import RangeReader

__all__ = ["IDLE_SECONDS", "Connections", "LoopThread", "Openable", "of_this_process"]

IDLE_SECONDS = 30.0
"""How long an unused connection is kept; Spark ends an idle worker after 60 s."""

_log = logging.getLogger(__name__)
_T = TypeVar("_T")

_STOP_SECONDS = 5.0


class LoopThread:
    """Runs coroutines and asynchronous iterators for other threads.

    Concurrency: any thread but its own may call.
    """

    def __init__(self) -> None:
        # A signal's handler may call while its own thread is in the middle of a call.
        self._lock = threading.RLock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None

    @property
    def is_started(self) -> bool:
        """Somebody has called, and `stop` did not."""
        return self._loop is not None

    def post(self, work: Coroutine[Any, Any, _T]) -> Future[_T]:
        """Starts ``work`` and does not wait for it."""
        return asyncio.run_coroutine_threadsafe(work, self._running())

    def call(self, work: Coroutine[Any, Any, _T], *, timeout: float) -> _T:
        """The result of ``work``; an interrupted call cancels it.

        Args:
            work: what to run.
            timeout: seconds after which it is cancelled.

        Raises:
            TransientAdapterError: it took longer than ``timeout``.
        """
        answer = self.post(_bounded(work, timeout))
        try:
            return answer.result()
        except BaseException:
            answer.cancel()
            raise

    def iterate(
        self, parts: Callable[[], AsyncIterator[_T]], *, timeout: float
    ) -> Generator[_T, None, None]:
        """The parts of an asynchronous iterator; one is read ahead while the last is used.

        Closing the generator early closes the iterator, and waits for that.

        Args:
            parts: makes the iterator, in the loop.
            timeout: seconds that one part may take.

        Raises:
            TransientAdapterError: a part took longer than ``timeout``.
        """
        ahead: _ReadAhead[_T] = _ReadAhead()
        pump = self.post(ahead.run(parts))
        try:
            while (part := ahead.take(timeout)) is not ahead:
                yield part  # type: ignore[misc]  # whatever is not the end mark is a part
            pump.result()
        finally:
            self._end(ahead)

    def stop(self) -> None:
        """Cancels what runs and ends the thread; a later call starts a new one."""
        with self._lock:
            loop, thread = self._loop, self._thread
            self._loop = self._thread = None
        if loop is not None and thread is not None:
            loop.call_soon_threadsafe(loop.stop)
            thread.join(_STOP_SECONDS)

    def _end(self, ahead: _ReadAhead[Any]) -> None:
        ending = self.post(ahead.aclose())
        # A generator that is collected as garbage may be closed by the loop's own thread.
        if threading.current_thread() is not self._thread:
            with suppress(TimeoutError):
                ending.result(_STOP_SECONDS)

    def _running(self) -> asyncio.AbstractEventLoop:
        with self._lock:
            if self._loop is None:
                loop = asyncio.new_event_loop()
                # A daemon: Spark's processes end while connections are open.
                self._thread = threading.Thread(
                    target=_run_loop, args=(loop,), name="consumer_sdk broker loop", daemon=True
                )
                self._thread.start()
                self._loop = loop
            return self._loop


class _ReadAhead(Generic[_T]):
    """Hands parts from the loop to another thread, at most one that is not yet taken."""

    def __init__(self) -> None:
        self._ready: queue.SimpleQueue[_T | _ReadAhead[_T]] = queue.SimpleQueue()
        self._room = asyncio.Semaphore(1)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._task: asyncio.Task[Any] | None = None

    async def run(self, parts: Callable[[], AsyncIterator[_T]]) -> None:
        """Reads in one task, as timeouts and task groups inside an iterator need it."""
        self._loop, self._task = asyncio.get_running_loop(), asyncio.current_task()
        try:
            async with aclosing(parts()) as source:  # type: ignore[type-var]  # generators
                await self._read(source)
        finally:
            self._ready.put(self)

    def take(self, timeout: float) -> _T | _ReadAhead[_T]:
        """The next part, or this object itself after the last one."""
        try:
            part = self._ready.get(timeout=timeout)
        except queue.Empty:
            raise TransientAdapterError(_late(timeout)) from None
        if self._loop is not None and part is not self:
            self._loop.call_soon_threadsafe(self._room.release)
        return part

    async def aclose(self) -> None:
        """Closes the iterator. `run`, which was posted before, has begun when this runs."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    async def _read(self, source: AsyncIterator[_T]) -> None:
        await self._room.acquire()
        async for part in source:
            self._ready.put(part)
            await self._room.acquire()


async def _bounded(work: Coroutine[Any, Any, _T], timeout: float) -> _T:
    # Not the future's own timeout, which says nothing of whether the work has ended.
    limit = asyncio.timeout(timeout)
    try:
        async with limit:
            return await work
    except TimeoutError as error:
        if not limit.expired():
            raise
        raise TransientAdapterError(_late(timeout)) from error


def _late(timeout: float) -> str:
    return f"the broker has not answered within {timeout:g} s: is it up, and can it be reached?"


def _run_loop(loop: asyncio.AbstractEventLoop) -> None:
    asyncio.set_event_loop(loop)
    try:
        loop.run_forever()
        loop.run_until_complete(_cancel_all())
        loop.run_until_complete(loop.shutdown_asyncgens())
    finally:
        loop.close()


async def _cancel_all() -> None:
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


# -- connections -----------------------------------------------------------------------------


class Client(Protocol):
    """What is opened once, and closed: a range reader, a record writer."""

    async def open(self) -> None:
        """Connects."""

    async def aclose(self) -> None:
        """Lets go of everything."""


C = TypeVar("C", bound=Client)


class Openable(Protocol):
    """What a connection is made from: `PullOptions`."""

    def identity(self) -> Hashable:
        """Equal for options that may share a connection, and for no others."""

    def open_reader(self) -> RangeReader:
        """A reader that is not yet open."""


class Connections:
    """Open clients, shared by all who ask with the same options.

    Concurrency: all of it runs in one event loop, so that nothing needs a lock.
    """

    def __init__(self, *, idle: float = IDLE_SECONDS) -> None:
        self._idle = idle
        self._kept: dict[Hashable, _Connection] = {}

    def borrowed(self, options: Openable) -> AbstractAsyncContextManager[RangeReader]:
        """An open reader; see `client`."""
        return self.client(options.identity(), options.open_reader)

    @asynccontextmanager
    async def client(self, identity: Hashable, make: Callable[[], C]) -> AsyncIterator[C]:
        """An open client; after an error in the block, nobody gets it again.

        Args:
            identity: equal for those who may share a connection, and for no others.
            make: a client that is not yet open.

        Raises:
            ConfigurationError: options that cannot work.
            AdapterError: the broker cannot be reached, or refused.
        """
        connection = self._take(identity, make)
        try:
            yield await connection.opened()
        except BaseException:
            self._drop(identity, connection)
            raise
        finally:
            await self._give_back(identity, connection)

    async def aclose(self) -> None:
        """Closes what is idle, and has the rest closed by its last user."""
        for identity, connection in list(self._kept.items()):
            self._drop(identity, connection)
            await self._close_unused(connection)

    def _take(self, identity: Hashable, make: Callable[[], Client]) -> _Connection:
        connection = self._kept.get(identity)
        if connection is None:
            connection = self._kept[identity] = _Connection(make())
        connection.users += 1
        connection.keep_until(None)
        return connection

    def _drop(self, identity: Hashable, connection: _Connection) -> None:
        if self._kept.get(identity) is connection:
            del self._kept[identity]

    async def _give_back(self, identity: Hashable, connection: _Connection) -> None:
        connection.users -= 1
        if self._kept.get(identity) is not connection:
            await self._close_unused(connection)
        elif not connection.users:
            loop = asyncio.get_running_loop()
            connection.keep_until(loop.call_later(self._idle, self._expire, identity, connection))

    def _expire(self, identity: Hashable, connection: _Connection) -> None:
        self._drop(identity, connection)
        connection.closing = asyncio.ensure_future(self._close_unused(connection))

    async def _close_unused(self, connection: _Connection) -> None:
        if connection.users:
            return
        connection.keep_until(None)
        try:
            await connection.client.aclose()
        except Exception:  # noqa: BLE001 - whatever it is, nobody needs this connection any more
            _log.debug("closing a connection failed", exc_info=True)


@dataclass(eq=False, slots=True)
class _Connection:
    client: Any
    users: int = 0
    closing: asyncio.Future[None] | None = None  # kept, so that it is not collected half-way
    _lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    _is_open: bool = False
    _failure: BaseException | None = None
    _timer: asyncio.TimerHandle | None = None

    async def opened(self) -> Any:
        async with self._lock:
            if self._failure is not None:
                raise TransientAdapterError("the connection failed to open") from self._failure
            if not self._is_open:
                await self._open()
        return self.client

    async def _open(self) -> None:
        """Opens the client, which can be done once: after a failure, nobody may wait for it.

        1. Two tasks ask for the same connection; the first one opens it, the second waits for the lock.
        2. Opening fails, and the first task gets the error.
        3. The second one has the lock. It gets an error that Spark may retry, and its retry another
           connection.
        """
        try:
            await self.client.open()
        except BaseException as error:
            self._failure = error
            raise
        self._is_open = True

    def keep_until(self, timer: asyncio.TimerHandle | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = timer


class Process:
    """What this process has for all its queries: one loop, and the connections in it."""

    def __init__(self) -> None:
        self.loop = LoopThread()
        self.connections = Connections()


_processes: dict[int, Process] = {}


def of_this_process() -> Process:
    """The one of this process; a forked child gets another, since it has none of its parent's threads."""
    # One atomic step and no lock: a fork could copy a lock while it is held.
    return _processes.setdefault(os.getpid(), Process())
