"""Leaves the group and stops the client, in bounded time.

The client's own ``stop`` waits for a join that another member holds up, never revokes, and gives
up half way when one of its cancelled requests raises. Here every step is isolated and bounded,
and what is left is closed the hard way.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any

from consumer_sdk.log_limits import LimitedLoggers

__all__ = ["CLIENT_LOGS", "bounded", "close_connections", "stop_client"]

log = logging.getLogger(__name__)

CLIENT_LOGS = LimitedLoggers("aiokafka")
"""Held from a client's `connect` to its end."""
STEP = 2.0
"""Seconds that one step may take."""


async def stop_client(consumer: Any) -> None:
    """Leaves the group at once and closes every connection. Never raises."""
    coordinator = consumer._coordinator
    consumer._closed = True
    if coordinator is not None and hasattr(coordinator, "_coordination_task"):
        await _leave(coordinator)
    elif coordinator is not None:
        await bounded(coordinator.close(), "closing the coordinator")
    if consumer._fetcher is not None:
        await bounded(consumer._fetcher.close(), "closing the fetcher")
    await bounded(consumer._client.close(), "closing the connections")
    close_connections(consumer._client)


def close_connections(client: Any) -> None:
    """Closes whatever connection a stop has left open."""
    for connection in list(client._conns.values()):
        connection.close()
    CLIENT_LOGS.release(client)


async def _leave(coordinator: Any) -> None:
    if not coordinator._closing.done():
        coordinator._closing.set_result(None)  # so that nothing rejoins
    task = coordinator._coordination_task
    await asyncio.wait({task}, timeout=0.05)
    task.cancel()  # it may wait for a join that another member holds up
    await _settled(task)
    await bounded(coordinator._stop_heartbeat_task(), "stopping the heartbeats")
    await bounded(coordinator._stop_commit_offsets_refresh_task(), "stopping the coordinator")
    await bounded(coordinator._maybe_leave_group(), "leaving the group")


async def bounded(step: Coroutine[Any, Any, Any], what: str) -> None:
    """Runs a step for at most `STEP` seconds, in a task that may fail or be cancelled alone."""
    task = asyncio.ensure_future(step)
    done, _pending = await asyncio.wait({task}, timeout=STEP)
    if not done:
        log.warning("%s took longer than %.0f s", what, STEP)
        task.cancel()
    await _settled(task, what)


async def _settled(task: asyncio.Task[Any], what: str = "closing") -> None:
    done, _pending = await asyncio.wait({task}, timeout=STEP)
    if done and not task.cancelled() and (error := task.exception()):
        log.warning("%s: %r", what, error)
