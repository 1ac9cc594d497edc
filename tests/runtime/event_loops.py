"""The event loops that users run: asyncio's own, with eager tasks, in debug mode, and uvloop."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

__all__ = ["LOOPS", "begin_eagerly", "run_on"]

LOOPS = ("asyncio", "eager", "debug", "uvloop")


def run_on(kind: str, main: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Runs ``main`` on a loop of that kind; skips the test where it is not installed."""
    factory = pytest.importorskip("uvloop").new_event_loop if kind == "uvloop" else None
    with asyncio.Runner(debug=kind == "debug", loop_factory=factory) as runner:
        if kind == "eager":
            runner.get_loop().set_task_factory(_eager_task)
        runner.run(main())


def _eager_task(loop: Any, coro: Any, **options: Any) -> Any:
    if sys.version_info >= (3, 12):
        return asyncio.eager_task_factory(loop, coro, **options)
    made: asyncio.Task[Any] = begin_eagerly(loop, asyncio.Task, coro, loop=loop, **options)
    return made


def begin_eagerly(loop: Any, make: Callable[..., Any], /, *args: Any, **options: Any) -> Any:
    """A task of ``make`` that has run to its first suspension, as Python 3.12's eager ones have.

    The step that a new task hands to ``call_soon`` is taken at once, if the loop runs yet.
    """
    if not loop.is_running():
        return make(*args, **options)
    steps: list[Any] = []
    call_soon, loop.call_soon = loop.call_soon, lambda *step, context: steps.append((step, context))
    try:
        task = make(*args, **options)
    finally:
        loop.call_soon = call_soon
    ((step,), context), maker = steps[0], asyncio.current_task(loop)
    if maker is not None:
        asyncio.tasks._leave_task(loop, maker)
    try:
        context.run(step)
    finally:
        if maker is not None:
            asyncio.tasks._enter_task(loop, maker)
    return task
