"""An event loop in a thread of its own, for callers that cannot await: Spark calls plain methods.

Rules:
 1. One thread for each process. A forked child has none of its parent's threads, so it gets its
    own (`consumer_sdk.spark_bridge.pull.connections.of_this_process`).
 2. Nothing starts before the first call: Spark imports a source, and makes instances of it, in
    processes that never read.
 3. Callers may have a running loop of their own (notebooks, UDFs): they block for the answer as
    for any other call, and their loop is not touched.
"""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Generator
from concurrent.futures import Future
from contextlib import aclosing, suppress
from typing import Any, Generic, TypeVar

from consumer_sdk.errors import TransientAdapterError

__all__ = ["LoopThread"]

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
                    target=_run, args=(loop,), name="consumer_sdk broker loop", daemon=True
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


def _run(loop: asyncio.AbstractEventLoop) -> None:
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
