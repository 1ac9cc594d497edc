"""Opens on a broker that is just being restarted, and not on one that refuses."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar

from consumer_sdk.errors import AdapterError, TransientAdapterError

__all__ = ["keep_trying", "unless_refused"]

log = logging.getLogger(__name__)

T = TypeVar("T")

FIRST_BACKOFF = 0.1
LONGEST_BACKOFF = 1.0
LOOK = 1.0
"""Seconds that an opening may take before somebody looks why."""


async def keep_trying(attempt: Callable[[float], Awaitable[T]], seconds: float) -> T:
    """What an attempt returns; one that fails for now is made again until the time is up.

    Args:
        attempt: is told how many seconds are left, which it may use up.
        seconds: for all attempts; the first is made in any case.

    Raises:
        TransientAdapterError: the last attempt's; another would have had no time to end.
        ConsumerSdkError: at once, what time does not fix: credentials, a topic that is not there.
    """
    now = asyncio.get_running_loop().time
    deadline, backoff = now() + seconds, FIRST_BACKOFF
    while True:
        try:
            return await attempt(max(deadline - now(), 0.0))
        except TransientAdapterError as error:
            left = deadline - now()
            if left < 2 * FIRST_BACKOFF:
                raise
            if backoff == FIRST_BACKOFF:
                log.warning("cannot open yet, trying for %.1f s more: %s", left, error)
            # The last one too has time to end: cut off, it would tell of that, not of the reason.
            await asyncio.sleep(min(backoff, left - FIRST_BACKOFF))
            backoff = min(backoff * 2, LONGEST_BACKOFF)


async def unless_refused(
    work: Coroutine[Any, Any, T], look: Callable[[], Awaitable[str | None]]
) -> T:
    """What an opening returns; one that takes long is given up if the broker would never allow it.

    Args:
        look: asks the broker what it has against us; None: nothing.

    Raises:
        AdapterError: it has something against us, or the opening's own.
    """
    task = asyncio.ensure_future(work)
    try:
        await asyncio.wait({task}, timeout=LOOK)
        if not task.done() and (why := await look()) is not None and not task.done():
            raise AdapterError(why)
        return await task
    finally:
        task.cancel()
        await asyncio.wait({task})
