"""Stops one process of a simulation, as SIGSTOP does, while the others go on."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from contextvars import Context, ContextVar, copy_context
from typing import Any

__all__ = ["PROCESS", "Freezer"]

PROCESS: ContextVar[str] = ContextVar("process")
"""The name of the process that a task belongs to; the tasks that it makes inherit it."""


class Freezer:
    """Keeps what a frozen process is about to do, until it goes on.

    A task does its next step through ``loop.call_soon``, in the task's context; so these calls are
    kept, in their order. What the process is waiting for comes about meanwhile, and its timers
    run out: that is what it finds when it goes on.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._call_soon: Callable[..., asyncio.Handle] = loop.call_soon
        self._frozen: dict[str, deque[asyncio.Handle]] = {}

    def freeze(self, process: str) -> None:
        """From now on it does nothing."""
        self._frozen.setdefault(process, deque())
        self._loop.call_soon = self._keep  # type: ignore[method-assign, assignment]  # only while one is frozen

    def thaw(self, process: str) -> None:
        """It goes on where it was."""
        kept = self._frozen.pop(process, deque())
        if not self._frozen:
            self._loop.call_soon = self._call_soon  # type: ignore[method-assign, assignment]  # as it was
        for handle in kept:
            self._call_soon(_run, handle)

    def _keep(
        self, callback: Callable[..., Any], *args: Any, context: Context | None = None
    ) -> asyncio.Handle:
        context = copy_context() if context is None else context
        kept = self._frozen.get(context.get(PROCESS, ""))
        if kept is None:
            return self._call_soon(callback, *args, context=context)
        handle = asyncio.Handle(callback, args, self._loop, context)
        kept.append(handle)
        return handle


def _run(handle: asyncio.Handle) -> None:
    if not handle.cancelled():
        handle._run()
