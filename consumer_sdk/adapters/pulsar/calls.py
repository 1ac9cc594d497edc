"""Asynchronous calls of the client, awaited.

The client calls back from a thread of its own. An exception that leaves a callback ends the
process, and so does touching a loop that was closed meanwhile: neither can happen here.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

import _pulsar

from consumer_sdk.adapters.pulsar.faults import translate, translate_result
from consumer_sdk.errors import TransientAdapterError

__all__ = ["ask", "call", "close_client"]


async def call(
    start: Callable[[Callable[..., None]], object],
    doing: str,
    *,
    late: Callable[[Any], object] = lambda _: None,
) -> Any:
    """Awaits one call.

    Args:
        start: makes the call with the callback that it is given.
        doing: what for, with the names that matter; an error's message starts with it.
        late: gets the result of a call that nobody waits for any more, in any thread.

    Raises:
        AdapterError: as `consumer_sdk.adapters.pulsar.faults` has it.

    Cancellation: the call goes on; see ``late``.
    """
    loop = asyncio.get_running_loop()
    future: asyncio.Future[Any] = loop.create_future()

    def called_back(result: Any, value: Any = None) -> None:
        try:
            loop.call_soon_threadsafe(settle, result, value)
        except RuntimeError:  # the loop was closed
            _quietly(late, result, value)

    def settle(result: Any, value: Any) -> None:
        if future.done():
            _quietly(late, result, value)
        elif result == _pulsar.Result.Ok:
            future.set_result(value)
        else:
            future.set_exception(translate_result(result, doing))

    start(called_back)
    try:
        return await future
    except asyncio.CancelledError:
        # (1) The result is set; (2) the waiter is cancelled before it runs.
        if future.done() and not future.cancelled() and future.exception() is None:
            _quietly(late, _pulsar.Result.Ok, future.result())
        raise


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


async def close_client(client: Any) -> None:
    """Closes a native client, whose threads have ended then.

    Not by ``close_async``: (1) a thread of the client's own calls back; (2) the loop hears, the
    program ends, and so does the interpreter; (3) the thread drops the callback, for which it takes the
    interpreter's lock. That is the end of the process, by SIGABRT or SIGSEGV: one in ten.

    Raises:
        AdapterError: as `consumer_sdk.adapters.pulsar.faults` has it.

    Cancellation: the client is closed all the same, within its operation timeout.
    """
    loop = asyncio.get_running_loop()
    thread = ThreadPoolExecutor(1, thread_name_prefix="pulsar close")
    try:
        await loop.run_in_executor(thread, client.close)
    except _pulsar.PulsarException as error:
        raise translate(error, "closing the client") from error
    finally:
        thread.shutdown(wait=False)


def _quietly(late: Callable[[Any], object], result: Any, value: Any) -> None:
    if result == _pulsar.Result.Ok and value is not None:
        with suppress(Exception):  # nobody is there to hear of it
            late(value)
