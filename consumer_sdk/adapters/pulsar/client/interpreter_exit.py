"""Keeps threads out of the native client when the interpreter ends.

CPython ends a thread that asks for its lock (the GIL) after that with `pthread_exit`, which unwinds the
stack. C++ does not let it through: ``terminate called without an active exception``, SIGABRT. Two
kinds of threads ask for the lock inside the client:

- a thread of Python's, such as a daemon thread with an event loop: each call of the client releases
  the lock, and takes it again;
- a thread of the client's that calls back, or lets go of a callback.

So calls are made ``with inside:``, and callbacks are passed on by `held`. At exit:

1. No thread gets inside any more, and threads that are inside come out.
2. All clients are closed, which sends the waiting acks.
3. The client releases each callback. A weak reference shows that: its own callback is a function
   of C, and the thread that has run it asks for the lock no more.
"""

from __future__ import annotations

import atexit
import os
import threading
import time
import weakref
from collections.abc import Callable
from typing import Any, TypeVar

from consumer_sdk.errors import ConsumerClosedError

__all__ = ["close_late", "close_soon", "held", "inside", "remember"]

F = TypeVar("F", bound=Callable[..., None])

OUT = 5.0
"""Seconds for threads to come out of the client; the longest call of one takes 0.1."""

CLOSE = 2.0
"""Seconds for the broker's answers; a client that has none by then is shut down."""

LOOK = 0.005
"""Seconds between two looks."""

_calls: list[None] = []
_callbacks: set[weakref.ref[Any]] = set()
_clients: weakref.WeakSet[Any] = weakref.WeakSet()
_ending = threading.Event()


class _Inside:
    """Around each call of the client that releases the interpreter's lock.

    Raises:
        ConsumerClosedError: the interpreter ends. A daemon thread stays here for a while before, so
            that it ends without a word; a function that was registered with `atexit` earlier, and
            runs later, may wait for it.
    """

    __slots__ = ()

    def __enter__(self) -> None:
        _calls.append(None)  # before it looks, or `_end` could miss it
        if _ending.is_set():
            _calls.pop()
            if threading.current_thread().daemon:
                threading.Event().wait(OUT)
            raise ConsumerClosedError("the interpreter ends: close Pulsar consumers before")

    def __exit__(self, *_: object) -> None:
        _calls.pop()


inside = _Inside()


def held(callback: F) -> F:
    """Makes a callback for the client. The caller must keep no reference to it."""
    _callbacks.add(weakref.ref(callback, _callbacks.discard))
    return callback


def remember(client: Any) -> None:
    """Registers an object, which is closed at exit if it is still open then."""
    _clients.add(client)


def close_soon(native: Any) -> None:
    """Closes a consumer, producer or reader, without a wait."""
    with inside:
        close_late(native)


def close_late(native: Any) -> None:
    """As `close_soon`, in a callback: there is no need to get inside."""
    native.close_async(None)


def _end() -> None:
    _ending.set()
    _wait(lambda: not _calls, OUT)
    for client in list(_clients):
        client.close_async(held(lambda _: None))
    _wait(lambda: not _callbacks, CLOSE)
    if _callbacks:
        for client in list(_clients):
            client.shutdown()
        _wait(lambda: not _callbacks, CLOSE)


def _wait(is_so: Callable[[], bool], patience: float) -> None:
    until = time.monotonic() + patience
    while not is_so() and time.monotonic() < until:
        time.sleep(LOOK)


def _forget() -> None:
    """A forked child has none of the threads, and may not touch the clients."""
    _calls.clear()
    _callbacks.clear()
    _clients.clear()


atexit.register(_end)
os.register_at_fork(after_in_child=_forget)
