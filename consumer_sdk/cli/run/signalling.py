"""Signals to children of asyncio's, which leave a child's exit status to the event loop.

`Process.send_signal` asks for the status itself before it sends (``subprocess.Popen.poll``). If the child
has just ended, asyncio's own ``waitpid`` comes too late, and asyncio reports 255 in place of the status:
https://github.com/python/cpython/issues/87744, in Python 3.11 and 3.12.

Python 3.13 calls ``os.kill`` in its place, and has another race: asyncio's thread has collected the child,
the loop does not know yet, and the pid is another process's by now
(https://github.com/python/cpython/issues/127049). A pidfd always means the process that it was opened for.
"""

from __future__ import annotations

import os
import signal
from asyncio.subprocess import Process
from contextlib import suppress

__all__ = ["send_signal"]


def send_signal(process: Process, number: signal.Signals) -> None:
    """Sends a signal to a child; nothing if it has ended.

    Its pid is free once it was collected, so another process of that pid gets no signal either. macOS has
    no pidfds: a pid could be given anew between the look and the signal there.
    """
    if process.returncode is not None:
        return
    with suppress(ProcessLookupError, ChildProcessError):
        pidfd = _open(process.pid)
        try:
            _look_for_child(process.pid)
            if pidfd is None:
                os.kill(process.pid, number)
            else:
                signal.pidfd_send_signal(pidfd, number)
        finally:
            if pidfd is not None:
                os.close(pidfd)


def _open(pid: int) -> int | None:
    """A pidfd; None without them: macOS, Linux before 5.3, a sandbox, too many open files."""
    try:
        return os.pidfd_open(pid)
    except ProcessLookupError:
        raise
    except (AttributeError, OSError):
        return None


def _look_for_child(pid: int) -> None:
    """Raises `ChildProcessError` if there is no child of that pid; leaves the status of one that has ended."""
    if hasattr(os, "waitid"):  # macOS has it from Python 3.13 on
        os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
