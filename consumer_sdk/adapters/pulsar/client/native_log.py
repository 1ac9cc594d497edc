"""Passes the native client's log on to Python's logger ``pulsar``.

The client writes to the console, to a file, or to a Python logger, which takes the interpreter's
lock in the client's threads and deadlocks, or crashes when the process ends
(https://github.com/apache/pulsar-client-python/issues/116). So it writes to a file that is a pipe,
and a thread of ours reads that: the client's threads never wait for the interpreter. Nor do they
wait for a full pipe, since their end of it does not block; what does not fit is lost.

The first client of a process decides where all of them log, until the process ends.
"""

from __future__ import annotations

import fcntl
import logging
import os
import re
import sys
import threading
from collections.abc import Iterator

from consumer_sdk.log_limits import LoggerFilter

__all__ = ["NativeLog"]

log = logging.getLogger("pulsar")

FORM = re.compile(
    r"\S+ \S+ (?P<level>[A-Z]+) +\[\d+\] (?P<file>[^:]*):(?P<line>\d+) \| (?P<text>.*)"
)
"""``2026-11-22 20:33:55.268 ERROR [1396814] ClientConnection:485 | Connection refused``"""
LEVELS = {"DEBUG": logging.DEBUG, "INFO": logging.INFO, "WARN": logging.WARNING}
SIZE = 1 << 20
"""Bytes that the pipe holds, where that can be chosen."""


class NativeLog:
    """The pipe of this process, and the thread that reads it.

    Attributes:
        path: what to give the client as the file to log to.
        pid: the process that reads it.
        writing: the end that is written to.
    """

    _current: NativeLog | None = None

    def __init__(self) -> None:
        self.pid = os.getpid()
        self._reading, self.writing = os.pipe()
        self._limit = LoggerFilter()
        self.path = f"/dev/fd/{self.writing}"
        if sys.platform == "linux":
            fcntl.fcntl(self.writing, fcntl.F_SETPIPE_SZ, SIZE)
        threading.Thread(target=self._read, name="consumer_sdk pulsar log", daemon=True).start()

    @classmethod
    def of_process(cls) -> NativeLog:
        """The log of this process; the clients of a forked child stop logging to the parent's."""
        found = cls._current
        if found is not None and found.pid == os.getpid():
            return found
        cls._current = made = cls()
        for copy in [] if found is None else list(found.copies()):
            os.dup2(made.writing, copy, inheritable=False)
        made.opened()
        return made

    def opened(self) -> None:
        """Called when the client has opened `path`: makes its end non-blocking, and not inheritable."""
        for copy in self.copies():
            os.set_blocking(copy, False)
            os.set_inheritable(copy, False)

    def copies(self) -> Iterator[int]:
        """The ends that the client has opened."""
        pipe = os.fstat(self.writing)
        for number in map(int, os.listdir("/dev/fd")):  # noqa: PTH208 - the names are wanted
            try:
                is_same = os.path.samestat(os.fstat(number), pipe)
            except OSError:  # what listed the folder is closed
                continue
            if is_same and number not in (self._reading, self.writing):
                yield number

    def _read(self) -> None:
        rest = b""
        while chunk := os.read(self._reading, 1 << 16):
            *lines, rest = (rest + chunk).split(b"\n")
            for line in lines:
                self._say(line.decode("utf-8", "replace"))

    def _say(self, line: str) -> None:
        found = FORM.fullmatch(line)
        name, file, number, text = found.groups() if found else ("ERROR", "pulsar", "0", line)
        level = LEVELS.get(name, logging.ERROR)
        if log.isEnabledFor(level):
            record = log.makeRecord(log.name, level, file, int(number), text, (), None)
            if self._limit.filter(record):
                log.handle(record)
