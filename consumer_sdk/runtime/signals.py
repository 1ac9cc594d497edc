"""SIGTERM and SIGINT stop every consumer that runs; whoever listened before hears them too.

One listener for each event loop: the first consumer that runs installs it, the last one puts back
what it found. It uses `signal.signal` and not ``loop.add_signal_handler``, which would replace
another's handler for good: a web server's, in whose lifespan a consumer runs. A handler that was
made with ``add_signal_handler`` is called by the loop all the same, since the loop hears of each
signal for which Python has any handler.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from types import FrameType
from typing import Any
from weakref import WeakKeyDictionary

__all__ = ["is_pythons_own", "stopped_by_signals"]

SIGNALS = (signal.SIGTERM, signal.SIGINT)


class _Listener:
    """What the signals stop on one event loop."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._stops: list[Callable[[], None]] = []
        self._found: dict[int, Any] = {}

    def add(self, stop: Callable[[], None]) -> None:
        """Installs the handlers with the first one; nothing but in the main thread."""
        if not self._stops:
            with suppress(ValueError):  # not the main thread
                for number in SIGNALS:
                    self._found[number] = signal.signal(number, self._heard)
        self._stops.append(stop)

    def remove(self, stop: Callable[[], None]) -> None:
        """Puts back, with the last one, what was found; what somebody has set since stays."""
        self._stops.remove(stop)
        if self._stops:
            return
        for number, found in self._found.items():
            if signal.getsignal(number) == self._heard:
                signal.signal(number, signal.SIG_DFL if found is None else found)
        self._found = {}

    def _heard(self, number: int, frame: FrameType | None) -> None:
        """Called between any two instructions: the loop does the rest."""
        with suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(self._stop_all)
        found = self._found.get(number)
        if callable(found) and not is_pythons_own(found):
            found(number, frame)

    def _stop_all(self) -> None:
        for stop in list(self._stops):
            stop()


def is_pythons_own(handler: Any) -> bool:
    """What ends a program that listens to nothing: by a KeyboardInterrupt, or by ``asyncio.run``."""
    function = handler.func if isinstance(handler, partial) else handler
    is_runners = getattr(function, "__func__", None) is getattr(
        asyncio.Runner, "_on_sigint", handler
    )
    return handler is signal.default_int_handler or is_runners


_listeners: WeakKeyDictionary[asyncio.AbstractEventLoop, _Listener] = WeakKeyDictionary()


@contextmanager
def stopped_by_signals(stop: Callable[[], None]) -> Iterator[None]:
    """SIGTERM and SIGINT call ``stop``, in the event loop; no-op but in the main thread."""
    loop = asyncio.get_running_loop()
    listener = _listeners.get(loop)
    if listener is None:
        listener = _listeners[loop] = _Listener()
    listener.add(stop)
    try:
        yield
    finally:
        listener.remove(stop)
