"""Runs a server so that it cannot outlive the process that started it.

Usage: ``python guard.py PARENT_PID READY_FD COMMAND...``. A program of its own; imports only the standard
library, and runs with ``-I -S`` to start in milliseconds.

Theory of operation. This process forks once and then *becomes* the server, so the server keeps the
process id that the parent knows, and stays the parent's direct child. The fork is the watcher: it
sleeps until either process ends. When the parent is gone, however it went, the watcher kills the
server; when the server is gone, the watcher ends. The parent hands over a pipe, which closes when
the command runs: a signal sent before that would hit this program, perhaps without its watcher.

Rejected: ``PR_SET_PDEATHSIG`` fires when the *thread* that started the server ends, and exists on
Linux only. A pipe that the parent holds open is inherited by whatever the parent forks, and such a
child may live on. The watcher looks at the parent through a pidfd, which is also right for a parent
that stays a zombie because nobody reaps it.
"""

import os
import select
import signal
import sys

_CHECK = 0.25  # seconds; how late the watcher may notice that the server ended


class _Parent:
    """The process that must stay alive."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._handle: int | None = None
        if sys.platform == "linux":
            self._handle = os.pidfd_open(pid)

    def is_gone(self, seconds: float) -> bool:
        """Wait up to so many seconds, then say whether the process has ended."""
        if self._handle is not None:
            return bool(select.select([self._handle], [], [], seconds)[0])
        select.select([], [], [], seconds)
        try:
            os.kill(self._pid, 0)
        except ProcessLookupError:
            return True
        return False


def _watch(parent: _Parent, server: int) -> None:
    # A server that ended is no longer our parent, so its number cannot be another process's here.
    while os.getppid() == server:
        if parent.is_gone(_CHECK) and os.getppid() == server:
            os.kill(server, signal.SIGKILL)


def main(parent_pid: int, ready: int, command: list[str]) -> None:
    """Fork the watcher, then become the command."""
    parent = _Parent(parent_pid)
    # The parent may have ended before the handle was opened: then this is another's child by now.
    if os.getppid() != parent_pid:
        return
    os.set_inheritable(ready, False)  # closes as the command takes over
    server = os.getpid()
    if os.fork() == 0:
        os.close(ready)
        _watch(parent, server)
        return
    os.execv(command[0], command)  # noqa: S606  the caller's command, without a shell


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3:])
