"""Where a store was opened: it belongs to one process and one event loop."""

from __future__ import annotations

import asyncio
import os
from typing import Protocol, TypeVar

from consumer_sdk.errors import ConsumerClosedError

__all__ = ["Opened", "is_left_over", "is_of_this_process", "opened_here"]


class Opened(Protocol):
    """An open file or connection.

    Attributes:
        pid: the process that has opened it.
        loop: the event loop in which it was opened.
    """

    pid: int
    loop: asyncio.AbstractEventLoop


T = TypeVar("T", bound=Opened)


def opened_here(opened: T | None, name: object, *, fork: str = "") -> T:
    """What is open, if it was opened in this process and in the running event loop.

    Args:
        opened: None: nothing is.
        name: what errors call it.
        fork: why it does not survive a fork, as a part of a sentence.

    Raises:
        ConsumerClosedError: it was not; says what to do.
    """
    if opened is None:
        raise ConsumerClosedError(f"{name} is not open (any more): await open() first")
    if not is_of_this_process(opened):
        raise ConsumerClosedError(
            f"{name} was opened before this process was forked{fork}: open it after the fork, or "
            f"start processes by spawning"
        )
    if opened.loop is not asyncio.get_running_loop():
        raise ConsumerClosedError(
            f"{name} was opened in another event loop: make a new object for this one"
        )
    return opened


def is_of_this_process(opened: Opened) -> bool:
    """No fork came since it was opened."""
    return opened.pid == os.getpid()


def is_left_over(opened: Opened) -> bool:
    """Its event loop was closed before it was: another one may open it again."""
    return is_of_this_process(opened) and opened.loop.is_closed()
