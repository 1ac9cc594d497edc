"""Work that several tasks wait for, and that is done once."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Generic, TypeVar

from consumer_sdk.errors import ConsumerClosedError

__all__ = ["CLOSED", "Shared", "has_failed", "wait_for"]

T = TypeVar("T")

CLOSED = "its writer is closed: make a new one"


class Shared(Generic[T]):
    """Results by name. Whoever asks first begins the work; what has failed is begun anew."""

    def __init__(self) -> None:
        self._tasks: dict[str, asyncio.Task[T]] = {}

    async def get(self, name: str, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """The result, as soon as there is one.

        Raises:
            ConsumerClosedError: all this was closed meanwhile.
            Exception: what the work raised.

        Cancellation: the work goes on, for others.
        """
        task = self._tasks.get(name)
        if task is None or has_failed(task):
            task = self._tasks[name] = asyncio.create_task(work(), name=f"pulsar {name}")
        return await wait_for(task)

    def forget(self, name: str) -> None:
        """The next one who asks begins anew; what is under way goes on."""
        if name in self._tasks and self._tasks[name].done():
            del self._tasks[name]

    async def aclose(self) -> None:
        """Cancels what is under way."""
        tasks, self._tasks = self._tasks, {}
        for task in tasks.values():
            task.cancel()
        await asyncio.gather(*tasks.values(), return_exceptions=True)


def has_failed(task: asyncio.Task[Any]) -> bool:
    """It has ended without a result."""
    return task.done() and (task.cancelled() or task.exception() is not None)


async def wait_for(task: asyncio.Task[T]) -> T:
    """Its result; it is not cancelled with who waits, since others wait for it too.

    Raises:
        ConsumerClosedError: it was cancelled, and who waits was not.
    """
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        waiter = asyncio.current_task()
        if task.cancelled() and waiter is not None and not waiter.cancelling():
            raise ConsumerClosedError(CLOSED) from None
        raise
