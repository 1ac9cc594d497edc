"""The bridge between an event loop and kazoo, which runs threads of its own; kazoo's errors as ours.

Rules:

- The loop hands requests to kazoo and never waits for it. Each request wakes kazoo's thread by a
  byte in a pipe; on Linux the 279th unread byte blocks. So kazoo has no more than `SLOTS` times
  `WINDOW` requests at a time, including those whose callers have given up waiting.
- kazoo's threads reach the loop through `call_soon_threadsafe` alone, once for a window.
- Every wait ends after ``patience`` seconds: kazoo itself may wait for three session timeouts.
  Without a connection nothing is handed to kazoo, which would keep it and send it later.
- Starting makes threads and returns. Stopping waits, so it has a thread to itself.
"""

from __future__ import annotations

import asyncio
import logging
import os
import threading
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple, TypeVar

from kazoo import exceptions as kazoo
from kazoo.client import KazooClient
from kazoo.exceptions import AuthFailedError
from kazoo.protocol.states import KazooState, KeeperState

from consumer_sdk.errors import StoreError, TransientStoreError
from consumer_sdk.log_limits import LimitedLoggers
from consumer_sdk.log_secrets import hide_arguments
from consumer_sdk.stores.zookeeper.options import ClientMaker

__all__ = ["Bridge", "Call", "UnknownResultError", "is_conflict", "translate"]

PASSING = (
    kazoo.ConnectionLoss,
    kazoo.NewConfigNoQuorumError,
    kazoo.OperationTimeoutError,
    kazoo.RequestTimeoutError,
    kazoo.SessionExpiredError,  # and ConnectionClosedError
    kazoo.SessionMovedError,
    kazoo.ThrottledOpError,
)

REMEDIES: dict[type[Exception], str] = {
    kazoo.NoAuthError: "not permitted: let this user create, read and write below the store's "
    "root, or give the store auth_data= or sasl_options=",
    kazoo.AuthFailedError: "the servers refused our credentials: see auth_data=, sasl_options= "
    "and the servers' log",
    kazoo.SessionClosedRequireSaslError: "the servers want SASL: give sasl_options=",
    kazoo.InvalidACLError: "the servers do not take default_acl=, or nobody has logged in for "
    "its 'auth' scheme",
    kazoo.QuotaExceededError: "the quota of this path is used up: raise it, or delete groups "
    "that are gone",
}

CONFLICTS = (kazoo.BadVersionError, kazoo.NodeExistsError, kazoo.NoNodeError)


class UnknownResultError(TransientStoreError):
    """The request was sent, and no answer came: it may have been applied, or be applied later."""


def is_conflict(error: Exception) -> bool:
    """Whether a write was refused because the znode is not as it was read."""
    return isinstance(error, CONFLICTS)


def translate(error: Exception, what: str) -> StoreError:
    """An error of kazoo's as ours; transient where it may pass.

    Args:
        what: what was asked for, or where.
    """
    if isinstance(error, PASSING):
        return UnknownResultError(f"{what}: the connection to ZooKeeper was lost ({error!r})")
    remedy = REMEDIES.get(type(error), "not expected from ZooKeeper here")
    return StoreError(f"{what}: {error!r}: {remedy}")


WINDOW = 100
SLOTS = 2

CLIENT_LOGS = LimitedLoggers("kazoo")
"""Held by each bridge until it is closed."""
hide_arguments("kazoo.client", "kazoo.protocol.connection", kinds=("Auth", "SASL"))

LOOK = 1.0
"""Seconds without a connection after which the servers are asked what is wrong."""

CLOSING = 5.0
"""Seconds that ending a session may take; after that kazoo's thread is left to itself."""

T = TypeVar("T")
Call = Callable[[Any, T], Any]
"""Asks a kazoo client for something; returns kazoo's handle of the answer."""

log = logging.getLogger(__name__)


class _Window(NamedTuple):
    """Requests that are in kazoo's hands."""

    handles: Sequence[Any]
    arrived: asyncio.Future[None]


class Bridge:
    """A kazoo client that reconnects by itself until it is closed.

    Args:
        make_client: makes the kazoo client, not started; and asks why it has no connection.
        patience: seconds to wait for a connection, and for each window of answers.

    Attributes:
        loop: the event loop that it belongs to.
        pid: the process that it belongs to; kazoo's threads do not survive a fork.
    """

    def __init__(self, make_client: ClientMaker, patience: float) -> None:
        self.loop = asyncio.get_running_loop()
        self.pid = os.getpid()
        self._make_client = make_client
        self._patience = patience
        self._slots = asyncio.Semaphore(SLOTS)
        self._may_ask = asyncio.Event()
        self._is_closing = False
        self._has_worked = False
        self._trouble: str | None = None
        self._client = self._start()

    async def ask(self, call: Call[T], subjects: Sequence[T]) -> list[Any]:
        """Calls with each subject, pipelined; for each the value, or kazoo's exception.

        Raises:
            TransientStoreError: there is no connection; some calls may not have been made.
            UnknownResultError: they were made, and no answer came.
            StoreError: the servers refused our credentials, or TLS fails, and never worked before.

        Cancellation: what was handed over is done nevertheless.
        """
        answers: list[Any] = []
        ahead: _Window | None = None
        for first in range(0, len(subjects), WINDOW):
            # The next window is on its way before the answers of the last one are looked at.
            window = await self._send(call, subjects[first : first + WINDOW])
            answers += await self._answers(ahead)
            ahead = window
        return answers + await self._answers(ahead)

    async def _send(self, call: Call[T], subjects: Sequence[T]) -> _Window:
        await self._until_free()
        handles = [call(self._client, subject) for subject in subjects]
        arrived = self.loop.create_future()
        arrived.add_done_callback(lambda _: self._slots.release())
        _when_answered(handles, lambda: _post(self.loop, arrived))
        return _Window(handles, arrived)

    async def _answers(self, window: _Window | None) -> list[Any]:
        if window is None:
            return []
        # Not awaited itself: that would cancel it, and free its slot, with the caller.
        if not (await asyncio.wait([window.arrived], timeout=self._patience))[0]:
            raise UnknownResultError(f"ZooKeeper gave no answer for {self._patience} s")
        self._check_alive()
        self._has_worked |= any(handle.exception is None for handle in window.handles)
        return [h.value if h.exception is None else h.exception for h in window.handles]

    async def _until_free(self) -> None:
        try:
            async with asyncio.timeout(self._patience):
                await self._until_connected()
                await self._slots.acquire()
        except TimeoutError:
            self._check_alive()
            why = self._trouble or (
                "see that its servers run, have a majority, and can be reached from here"
            )
            raise TransientStoreError(
                f"no connection to ZooKeeper at {self._hosts}, or no answer, for {self._patience} "
                f"s: {why}"
            ) from None
        if self._is_closing:
            self._slots.release()
            raise TransientStoreError("the store was closed before this was done")

    async def _until_connected(self) -> None:
        """Waits; asks meanwhile why that takes so long, as kazoo does not tell.

        Raises:
            StoreError: TLS fails, and never worked: waiting would not fix it.
        """
        try:
            async with asyncio.timeout(min(LOOK, self._patience / 4)):
                await self._may_ask.wait()
        except TimeoutError:
            self._trouble = await self._make_client.explain(self._client.hosts)
            if self._trouble is not None and not self._has_worked:
                raise StoreError(f"ZooKeeper at {self._hosts}: {self._trouble}") from None
            await self._may_ask.wait()
        self._trouble = None

    @property
    def _hosts(self) -> str:
        return ",".join(f"{host}:{port}" for host, port in self._client.hosts)

    def _check_alive(self) -> None:
        """Where kazoo has given up for good, starts anew: what was wrong may be fixed by now."""
        # Closed is also what a client is that could not yet look up its hosts.
        is_dead = self._was_connected and self._client.client_state == KeeperState.CLOSED
        if self._is_closing or not (is_dead or self._was_refused):
            return
        error = UnknownResultError(
            f"{self._hosts}: kazoo has given up, see the log of kazoo.client. Are auth_data= and "
            f"sasl_options= what the servers want?"
        )
        # A server that goes down in the middle of a login looks like one that refuses it.
        is_for_good = self._was_refused and not self._has_worked
        self.abandon()
        self._client = self._start()
        raise translate(AuthFailedError(), self._hosts) if is_for_good else error

    def _start(self) -> KazooClient:
        self._was_connected = self._was_refused = False
        self._may_ask.clear()
        CLIENT_LOGS.hold(self)
        client = self._make_client()
        client.add_listener(partial(self._state_changed, client))
        client.start_async()
        return client

    def _state_changed(self, client: KazooClient, state: str) -> None:
        """Called by kazoo's threads."""
        was_refused = client.client_state == KeeperState.AUTH_FAILED  # soon it is just closed
        _call_soon(self.loop, lambda: self._note(client, state, was_refused=was_refused))

    def _note(self, client: KazooClient, state: str, *, was_refused: bool) -> None:
        if client is not self._client or self._is_closing:
            return
        self._was_refused |= was_refused
        if state == KazooState.CONNECTED:
            self._was_connected = True
            self._may_ask.set()
        else:
            self._may_ask.clear()

    def watcher(self, changed: Callable[[], object]) -> Callable[[object], None]:
        """A watch for kazoo's requests, which calls ``changed`` in the event loop."""
        return lambda _: _call_soon(self.loop, changed)

    async def aclose(self) -> None:
        """Ends the session after what was handed over. Bounded; from any event loop."""
        self._is_closing = True
        loop = asyncio.get_running_loop()
        if loop is self.loop:
            self._may_ask.set()  # whoever waits is told
        stopped = loop.create_future()
        _stop(self._client, lambda: _post(loop, stopped))
        if not (await asyncio.wait([stopped], timeout=CLOSING))[0]:
            log.warning("ZooKeeper did not end the session within %s s: it will expire", CLOSING)
        CLIENT_LOGS.release(self)

    def abandon(self) -> None:
        """Ends the session without waiting for that."""
        CLIENT_LOGS.release(self)
        _stop(self._client, lambda: None)


def _when_answered(handles: Sequence[Any], then: Callable[[], None]) -> None:
    """Calls ``then`` on one of kazoo's threads.

    Answers come in the order of the requests, so that the last one mostly is the last one. (A
    callback for each would wake a thread for each, and take as long again.)
    """
    missing = next((handle for handle in reversed(handles) if not handle.ready()), None)
    if missing is None:
        then()
    else:
        missing.rawlink(lambda _: _when_answered(handles, then))


def _stop(client: KazooClient, then: Callable[[], None]) -> None:
    def stop() -> None:
        try:
            client.stop()
            client.close()
        except Exception as error:  # noqa: BLE001 - whatever it is, the session expires by itself
            log.debug("kazoo did not stop cleanly: %r", error)
        then()

    threading.Thread(target=stop, name="consumer_sdk.stores.zookeeper.store", daemon=True).start()


def _post(loop: asyncio.AbstractEventLoop, future: asyncio.Future[None]) -> None:
    _call_soon(loop, lambda: None if future.done() else future.set_result(None))


def _call_soon(loop: asyncio.AbstractEventLoop, work: Callable[[], object]) -> None:
    try:
        loop.call_soon_threadsafe(work)
    except RuntimeError:  # the loop is closed: nobody waits any more
        log.debug("news of ZooKeeper came after the event loop was closed")
