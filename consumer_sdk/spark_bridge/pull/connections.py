"""Connections to brokers: a process keeps them for a while, in the one thread that uses them.

Spark's Python workers serve many tasks, of several queries, whose options may differ. So tasks share a
connection if all of their options are the same (`PullOptions.identity`), secrets included; this holds for
the sink's too. No reader owns one, because readers are pickled. When a task gets an error from a
connection, later tasks get another one.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import AsyncIterator, Callable, Hashable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

from consumer_sdk.errors import TransientAdapterError
from consumer_sdk.range_reads import RangeReader
from consumer_sdk.spark_bridge.pull.loop_thread import LoopThread

__all__ = ["IDLE_SECONDS", "Connections", "Openable", "of_this_process"]

IDLE_SECONDS = 30.0
"""How long an unused connection is kept; Spark ends an idle worker after 60 s."""

_log = logging.getLogger(__name__)


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
