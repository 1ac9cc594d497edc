"""A last word before Spark's source runner dies.

``query.stop()`` and the end of a driver send SIGTERM to the runner process: neither ``stop()`` of
the reader nor a ``finally`` runs by itself.
"""

from __future__ import annotations

import atexit
import os
import signal
import sys
import threading
from collections.abc import Callable
from types import FrameType

__all__ = ["before_end"]

_RUNNER = "python_streaming_source_runner.py"


def before_end(last_word: Callable[[], None]) -> None:
    """Has ``last_word`` called when this process ends, where it is Spark's source runner.

    Elsewhere signals belong to the program. A handler that was set before is called afterwards.
    """
    if not sys.argv[0].endswith(_RUNNER):
        return
    atexit.register(last_word)
    if threading.current_thread() is threading.main_thread():
        _chain(last_word)


def _chain(last_word: Callable[[], None]) -> None:
    before = signal.getsignal(signal.SIGTERM)

    def ending(number: int, frame: FrameType | None) -> None:
        last_word()
        if callable(before):
            before(number, frame)
        elif before is not signal.SIG_IGN:
            # Dies by the signal, as it would have without us.
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)

    signal.signal(signal.SIGTERM, ending)
