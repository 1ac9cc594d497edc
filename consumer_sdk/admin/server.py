"""The application under a server of its own, in the consumer's event loop."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
from collections.abc import Collection
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Self, final

from consumer_sdk.admin.addresses import Address, listen, parse_address
from consumer_sdk.admin.application import Admin
from consumer_sdk.admin.connections import BACKLOG, CONNECTIONS, LOGS, Connection
from consumer_sdk.admin.options import VIEWERS, AdminOptions
from consumer_sdk.admin.sources import Consumers, Source
from consumer_sdk.errors import ConfigurationError, ConsumerClosedError, MissingExtraError
from consumer_sdk.runtime import Consumer

try:
    import uvicorn
except ImportError as _error:
    raise MissingExtraError("uvicorn", "admin") from _error

__all__ = ["AdminServer", "serve", "serve_source"]

log = logging.getLogger(__name__)

MOST_VIEWERS = CONNECTIONS - 50
"""The others are for probes and scrapes."""
GRACE = 2
"""Whole seconds that answers may take after the end."""


def serve(
    *consumers: Consumer,
    address: str | None = None,
    token: str | None = None,
    view: bool = True,
    actions: bool = False,
    hosts: Collection[str] = (),
    max_viewers: int = VIEWERS,
) -> AdminServer:
    """Returns a server that runs as long as its block: ``async with admin.serve(consumer) as server:``.

    Args:
        consumers: the consumers that it shows. They run in this event loop, and may be opened
            later.
        address: ``unix:/path``, ``127.0.0.1:9464``, or any other with a ``token``. None for a Unix
            socket of mode 0600 where ``consumer-sdk top`` looks for it.
        token, view, actions, hosts, max_viewers: as in `app`.

    Raises:
        MissingExtraError: the extra ``admin`` is not installed.
        ConfigurationError: an option that cannot work, or no token for an address that others reach;
            on entering the block: another process listens there already.
    """
    source = Consumers(consumers)
    name = consumers[0].snapshot().group or "consumer"
    options = AdminOptions(
        address=address,
        token=token,
        view=view,
        actions=actions,
        hosts=hosts,
        max_viewers=max_viewers,
    )
    return serve_source(source, name, options)


def serve_source(source: Source, name: str, options: AdminOptions) -> AdminServer:
    """As `serve`, for any source of snapshots.

    Args:
        name: that the socket gets if the options have no address.
    """
    if options.max_viewers > MOST_VIEWERS:
        raise ConfigurationError(
            f"max_viewers={options.max_viewers}: give {MOST_VIEWERS} at most; the server has {CONNECTIONS} "
            "connections, and probes need some"
        )
    where = parse_address(options.address, name)
    if options.token is None and not where.is_private:
        raise ConfigurationError(
            f"address={options.address!r} is reached from other machines: give a token=…, or 127.0.0.1, or "
            "unix:/path"
        )
    # Browsers do not reach a Unix socket, so no site can either: whatever the request calls it.
    admin = Admin(source, options)
    application = admin.guarded(None if where.path is not None else options.hosts)
    return AdminServer(admin, application, where)


@final
class AdminServer:
    """What `serve` returns."""

    def __init__(self, admin: Admin, application: Any, address: Address) -> None:
        self._admin = admin
        self._application = application
        self._address = address
        self._server: _Server | None = None
        self._task: asyncio.Task[None] | None = None
        self._made: os.stat_result | None = None

    @property
    def address(self) -> str:
        """As a browser takes it, with the port that was found; or ``unix:/path``."""
        return str(self._address)

    async def __aenter__(self) -> Self:
        """Listens.

        Raises:
            ConfigurationError: somebody listens there, or nobody may.
        """
        if self._task is not None:
            raise ConsumerClosedError("an admin server is opened once; make a new one")
        listener, self._address = listen(self._address)
        if self._address.path is not None:
            self._made = self._address.path.stat()
        LOGS.hold(self)
        self._server = _Server(_config(self._application))
        self._task = asyncio.create_task(self._server.serve([listener]), name="admin server")
        self._task.add_done_callback(_ended)
        log.info("the consumer can be seen at %s", self.address)
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Sends viewers away, and stops listening; idempotent.

        Cancellation: goes on to its end, which takes some three seconds at most.
        """
        if self._server is None or self._task is None:
            return
        self._server.should_exit = True
        self._admin.close()
        ended = asyncio.ensure_future(asyncio.wait({self._task}))
        try:
            await asyncio.shield(ended)
        except asyncio.CancelledError:
            await ended
            raise
        finally:
            self._remove_socket()
            LOGS.release(self)

    def _remove_socket(self) -> None:
        """Unless another process has put its own in this place."""
        path, made, self._made = self._address.path, self._made, None
        if path is None or made is None:
            return
        with contextlib.suppress(OSError):
            if os.path.samestat(path.stat(), made):
                path.unlink()


def _ended(task: asyncio.Task[None]) -> None:
    """The consumer goes on without it."""
    if not task.cancelled() and (error := task.exception()) is not None:
        log.error("the admin server has ended", exc_info=error)


def _config(application: Any) -> uvicorn.Config:
    return uvicorn.Config(
        application,
        http=Connection,
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        proxy_headers=False,
        server_header=False,
        limit_concurrency=CONNECTIONS,
        backlog=BACKLOG,
        timeout_graceful_shutdown=GRACE,
    )


class _Server(uvicorn.Server):
    """Hears no signal: they are the consumer's, which drains first."""

    def capture_signals(self) -> AbstractContextManager[None]:  # type: ignore[override]  # a generator there
        """Nothing is captured."""
        return nullcontext()

    async def serve(self, sockets: list[socket.socket] | None = None) -> None:
        """Its `SystemExit` would end the consumer's process."""
        try:
            await super().serve(sockets)
        except SystemExit as error:
            raise RuntimeError(f"uvicorn has ended with status {error.code}") from error

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """No connection is left: also none whose other side takes nothing."""
        try:
            await super().shutdown(sockets)
        finally:
            for connection in list(self.server_state.connections):
                connection.transport.abort()
