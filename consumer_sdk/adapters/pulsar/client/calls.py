"""Asynchronous calls of the client, awaited.

The client calls back from a thread of its own. An exception that leaves a callback ends the
process, and so does touching a loop that was closed meanwhile: neither can happen here.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import _pulsar

from consumer_sdk.adapters.pulsar.client.faults import translate_result
from consumer_sdk.adapters.pulsar.client.interpreter_exit import held, inside
from consumer_sdk.errors import ConsumerSdkError, TransientAdapterError

__all__ = ["CLOSE", "ask", "call", "close"]

log = logging.getLogger(__name__)

CLOSE = 5.0
"""Seconds for the broker's answer to a close; the client goes on with it."""


async def call(
    start: Callable[[Callable[..., None]], object],
    doing: str,
    *,
    late: Callable[[Any], object] = lambda _: None,
) -> Any:
    """Makes one call of the client, and awaits its result.

    Args:
        start: makes the call, with the callback that it is given.
        doing: what the call is for, with the names that matter; an error's message starts with it.
        late: gets the result of a call whose wait was cancelled, in any thread.

    Raises:
        AdapterError: as `consumer_sdk.adapters.pulsar.client.faults` has it.

    Cancellation: the call goes on; see ``late``.
    """
    future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    with inside:
        start(held(_answer(future, doing, late)))
    try:
        return await future
    except asyncio.CancelledError:
        # (1) The result is set; (2) the waiter is cancelled before it runs.
        if future.done() and not future.cancelled() and future.exception() is None:
            with inside:
                _quietly(late, _pulsar.Result.Ok, future.result())
        raise


def _answer(
    future: asyncio.Future[Any], doing: str, late: Callable[[Any], object]
) -> Callable[..., None]:
    """A callback that settles a future, or does nothing where nobody waits for it any more."""
    loop = future.get_loop()

    def called_back(result: Any, value: Any = None) -> None:
        try:
            loop.call_soon_threadsafe(settle, result, value)
        except RuntimeError:  # the loop was closed
            _quietly(late, result, value)

    def settle(result: Any, value: Any) -> None:
        if future.done():
            with inside:
                _quietly(late, result, value)
        elif result == _pulsar.Result.Ok:
            future.set_result(value)
        else:
            future.set_exception(translate_result(result, doing))

    return called_back


async def ask(
    start: Callable[[Callable[..., None]], object], doing: str, patience: float, **late: Any
) -> Any:
    """As `call`, for ``patience`` seconds at most.

    Raises:
        TransientAdapterError: there was no answer.
        AdapterError: as `call`.
    """
    try:
        async with asyncio.timeout(patience):
            return await call(start, doing, **late)
    except TimeoutError as error:
        raise TransientAdapterError(f"{doing}: no answer") from error


async def close(
    native: Any, what: str, *, patience: float = CLOSE, level: int = logging.WARNING
) -> None:
    """Closes a client, consumer, producer or reader; a failure is logged.

    After a failure the native client has released it nevertheless, and the broker does so when it
    reads the request or loses the connection. The request is not repeated on another connection, as
    other requests are. A client may never answer, because it counts its open consumers in several
    threads without a lock. It is shut down at exit.

    Args:
        what: is closed, for the log.
        patience: seconds for the broker's answer.
        level: of the line in the log.

    Cancellation: the close goes on.
    """
    try:
        await ask(native.close_async, f"closing {what}", patience)
    except ConsumerSdkError as error:
        log.log(level, "%s", error)


def _quietly(late: Callable[[Any], object], result: Any, value: Any) -> None:
    if result == _pulsar.Result.Ok and value is not None:
        with suppress(Exception):  # nobody is there to hear of it
            late(value)
