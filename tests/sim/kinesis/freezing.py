"""Stops one process of a simulation, as SIGSTOP does, while the others go on."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from contextvars import Context, ContextVar, copy_context
from dataclasses import dataclass, field
from typing import Any

__all__ = ["PROCESS", "Freezer"]


@dataclass(slots=True)
class _Stillness:
    """What a frozen process is about to do.

    Attributes:
        since: the loop's time when it was stopped.
        stops: how many of its stops are not over.
    """

    since: float
    stops: int = 0
    kept: deque[asyncio.Handle] = field(default_factory=deque)


PROCESS: ContextVar[str] = ContextVar("process")
"""The name of the process that a task belongs to; the tasks that it makes inherit it."""


class Freezer:
    """Keeps what a frozen process is about to do, until it goes on.

    A task does its next step through ``loop.call_soon``, in the task's context; so these calls are
    kept, in their order. What the process is waiting for comes about meanwhile, and its timers
    run out: that is what it finds when it goes on.

    One that is stopped while it is stopped goes on when the last of its stops is over.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._call_soon: Callable[..., asyncio.Handle] = loop.call_soon
        self._frozen: dict[str, _Stillness] = {}

    def freeze(self, process: str) -> None:
        """From now on it does nothing."""
        self._frozen.setdefault(process, _Stillness(self._loop.time())).stops += 1
        self._loop.call_soon = self._keep  # type: ignore[method-assign, assignment]  # only while one is frozen

    def thaw(self, process: str) -> float:
        """One of its stops is over; after the last it goes on where it was.

        Returns:
            seconds for which it did nothing; 0.0 if another stop lasts.
        """
        stillness = self._frozen[process]
        stillness.stops -= 1
        if stillness.stops:
            return 0.0
        del self._frozen[process]
        if not self._frozen:
            self._loop.call_soon = self._call_soon  # type: ignore[method-assign, assignment]  # as it was
        for handle in stillness.kept:
            self._call_soon(_run, handle)
        return self._loop.time() - stillness.since

    def _keep(
        self, callback: Callable[..., Any], *args: Any, context: Context | None = None
    ) -> asyncio.Handle:
        context = copy_context() if context is None else context
        stillness = self._frozen.get(context.get(PROCESS, ""))
        if stillness is None:
            return self._call_soon(callback, *args, context=context)
        handle = asyncio.Handle(callback, args, self._loop, context)
        stillness.kept.append(handle)
        return handle


def _run(handle: asyncio.Handle) -> None:
    if not handle.cancelled():
        handle._run()
