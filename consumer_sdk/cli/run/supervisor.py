"""Looks after the workers of a service: processes of one group.

::

    a worker ends with status 0        its service ended by itself: the others go on
    … with 2, in its first life        it cannot work: all end, with that status
    … with anything else               it is started again, later each time it dies soon
    … by a signal of somebody else's   likewise
    it cannot be started               likewise
    SIGTERM, SIGINT                    all are told to end, and drain; another one, a second or more
                                       after the first, kills them
    this process is killed             each worker sees the end of its stdin, and drains
    a file was changed (``reloads``)   all are told to end, and started again
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, suppress
from pathlib import Path

from consumer_sdk.cli.run.links import LINK
from consumer_sdk.cli.run.services import WORKER
from consumer_sdk.cli.run.workers import Workers

__all__ = [
    "SIGNALLED",
    "Restarts",
    "Signals",
    "Supervisor",
    "changes",
    "modified",
    "send_signal",
    "worker_command",
]

FIRST = 0.5
LONGEST = 30.0
SAME = 1.0
"""Seconds within which signals are one: who ends a process group may send its leader two."""
SOUND = 60.0
"""Seconds after which a worker counts as one that has worked: the next wait is the first one again."""


class Restarts:
    """How long to wait before one worker is started again: twice as long each time it dies soon."""

    def __init__(self) -> None:
        self._next = FIRST

    def after(self, lived: float) -> float:
        """Seconds to wait.

        Args:
            lived: seconds from its start to its end.
        """
        wait = FIRST if lived >= SOUND else self._next
        self._next = min(wait * 2, LONGEST)
        return wait


class Signals:
    """Which signals mean the same: ``timeout`` sends one to its child, and one to the child's group."""

    def __init__(self) -> None:
        self._first: float | None = None

    def is_another(self, now: float) -> bool:
        """Whether this one comes after the first, and is not the same."""
        if self._first is None:
            self._first = now
        return now - self._first >= SAME


def modified(root: Path, others: Iterable[str] = ()) -> dict[str, int]:
    """When each Python file below a directory, and each other one, was written: nanoseconds.

    Hidden directories and virtual environments are left out.
    """
    files = [*others]
    for folder, below, names in os.walk(root):
        below[:] = [
            name
            for name in below
            if not name.startswith((".", "__pycache__", "node_modules"))
            and not os.path.exists(os.path.join(folder, name, "pyvenv.cfg"))  # noqa: PTH110, PTH118 - thousands of them
        ]
        files += [os.path.join(folder, name) for name in names if name.endswith(".py")]  # noqa: PTH118 - likewise
    return {file: at for file in files if (at := _written(file))}


def _written(file: str) -> int:
    try:
        return os.stat(file).st_mtime_ns  # noqa: PTH116 - likewise
    except OSError:
        return 0  # deleted meanwhile


def changes(before: Mapping[str, int], after: Mapping[str, int]) -> list[str]:
    """The files that were written, made or deleted."""
    names = before.keys() | after.keys()
    return sorted(name for name in names if before.get(name) != after.get(name))


log = logging.getLogger(__name__)

LOOK = 0.5
"""Seconds between two looks at files."""
REFUSED = 2
"""The exit status of what cannot work."""
INTERRUPTED = 130
"""… and of what Ctrl-C has ended, of which a terminal tells workers too."""
SIGNALLED = 128
"""What a signal's number is added to: of a worker that has drained because of it."""
NOT_STARTED = 1


def worker_command(arguments: Sequence[str]) -> list[str]:
    """The same command as this process's, in the same interpreter."""
    warnings = [f"-W{option}" for option in sys.warnoptions]
    return [sys.executable, *warnings, "-m", "consumer_sdk", *arguments]


class Supervisor:
    """Starts workers, and starts them again.

    Args:
        command: of each worker.
        count: of workers.
        reloads: start them again when a Python file below the working directory changes.
        watched: other files that are looked at.
        workers: what is shown of them; None: nobody looks.
    """

    def __init__(
        self,
        command: Sequence[str],
        count: int,
        *,
        reloads: bool = False,
        watched: Sequence[str] = (),
        workers: Workers | None = None,
    ) -> None:
        self._command = command
        self._count = count
        self._reloads = reloads
        self._watched = watched
        self._workers = workers
        self._processes: set[Process] = set()
        self._stopping = asyncio.Event()
        self._changed = asyncio.Event()
        self._status = 0
        self._signals = Signals()

    async def run(self) -> int:
        """Returns when all have ended: 0, or the status of one that failed."""
        loop = asyncio.get_running_loop()
        for each in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(each, self._heard)
        watching = None
        if self._reloads:
            # Looked at before a worker reads them: what is changed meanwhile is seen.
            watching = asyncio.create_task(self._watch(await self._modified()))
        try:
            async with asyncio.TaskGroup() as workers:
                for number in range(self._count):
                    workers.create_task(self._keep(number))
        finally:
            if watching is not None:
                watching.cancel()
                await asyncio.wait({watching})
            self._send(signal.SIGKILL)  # where this was cancelled
        return self._status

    # -- ending -------------------------------------------------------------------------------

    def _heard(self) -> None:
        is_another = self._signals.is_another(asyncio.get_running_loop().time())
        if is_another or not self._stopping.is_set():
            self._send(signal.SIGKILL if self._stopping.is_set() else signal.SIGTERM)
        self._stopping.set()

    def _stop(self, status: int) -> None:
        self._status = self._status or status
        if not self._stopping.is_set():
            self._heard()

    def _send(self, number: signal.Signals) -> None:
        for process in self._processes:
            send_signal(process, number)

    # -- one worker ---------------------------------------------------------------------------

    async def _keep(self, number: int) -> None:
        restarts, is_first = Restarts(), True
        while not self._stopping.is_set():
            changed = self._changed
            began = asyncio.get_running_loop().time()
            pid, status = await self._live(number, changed)
            if self._stopping.is_set():
                self._status = self._status or _final(status)
            elif changed.is_set():
                continue
            elif status == 0:
                if self._workers is not None:
                    self._workers.left(number)
                return
            elif self._reloads:
                log.error("worker %s %s; waits for a change", pid or number, _how(status))
                await _first_of(self._stopping, changed)
            elif status == REFUSED and is_first:
                self._stop(status)
            else:
                wait = restarts.after(asyncio.get_running_loop().time() - began)
                level = logging.ERROR if _signal(status) is None else logging.WARNING
                how = _how(status) if pid else "was not started"
                log.log(level, "worker %d %s; another one starts in %g s", pid or number, how, wait)
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._stopping.wait(), wait)
            is_first = False

    async def _live(self, number: int, changed: asyncio.Event) -> tuple[int, int]:
        """The pid and the status of a worker that has ended; 0 and a status if it cannot be started."""
        async with AsyncExitStack() as link:
            try:
                process = await self._start(number, link)
            except OSError as error:  # too many processes, or files, or no memory: the others go on
                log.warning("worker %d: cannot be started: %s", number, error)
                return 0, NOT_STARTED
            return process.pid, await self._until_its_end(number, process, changed)

    async def _start(self, number: int, link: AsyncExitStack) -> Process:
        environment, ends = {**os.environ, WORKER: str(number)}, []
        if self._workers is not None:
            ends.append(await link.enter_async_context(self._workers.linked(number)))
            environment[LINK] = str(ends[0].fileno())
        process = await asyncio.create_subprocess_exec(
            *self._command,
            stdin=PIPE,
            env=environment,
            pass_fds=[each.fileno() for each in ends],
        )
        for each in ends:
            each.close()  # so that its end is seen
        return process

    async def _until_its_end(self, number: int, process: Process, changed: asyncio.Event) -> int:
        self._processes.add(process)
        try:
            # Asked for before there was a process to tell.
            if self._stopping.is_set() or changed.is_set():
                send_signal(process, signal.SIGTERM)
            log.info("worker %d: pid %d", number, process.pid)
            return await process.wait()
        finally:
            if process.returncode is not None:
                self._processes.discard(process)

    # -- reloading ----------------------------------------------------------------------------

    async def _watch(self, seen: dict[str, int]) -> None:
        while True:
            await asyncio.sleep(LOOK)
            found = await self._modified()
            if names := changes(seen, found):
                log.info("%s changed; starting again", ", ".join(map(os.path.relpath, names[:5])))
                self._changed.set()
                self._changed = asyncio.Event()
                self._send(signal.SIGTERM)
            seen = found

    async def _modified(self) -> dict[str, int]:
        return await asyncio.to_thread(modified, Path.cwd(), self._watched)


async def _first_of(*events: asyncio.Event) -> None:
    waits = [asyncio.ensure_future(event.wait()) for event in events]
    try:
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for wait in waits:
            wait.cancel()


def _final(status: int) -> int:
    """Of a worker that was told to end: before it runs, the signal itself ends it."""
    is_asked = status in {0, INTERRUPTED} or _signal(status) == signal.SIGTERM
    return 0 if is_asked else max(status, 1)


def _signal(status: int) -> int | None:
    """What a worker was ended by, at once or after its drain; None: it has ended by itself."""
    if status < 0:
        return -status
    number = status - SIGNALLED
    return number if number in set(signal.Signals) else None


def _how(status: int) -> str:
    number = _signal(status)
    if number is None:
        return f"ended with status {status}"
    name = signal.Signals(number).name if number in set(signal.Signals) else f"signal {number}"
    return f"{'died' if status < 0 else 'was ended'} by {name}"


# -- signals to workers ------------------------------------------------------------------------


def send_signal(process: Process, number: signal.Signals) -> None:
    """Sends a signal to a worker, and leaves its exit status to the event loop; nothing if it has ended.

    `Process.send_signal` asks for the status itself before it sends (``subprocess.Popen.poll``):
    1. the worker ends; 2. ``poll`` collects its status; 3. asyncio's own ``waitpid`` comes too late, and
    asyncio reports 255 in place of the status (https://github.com/python/cpython/issues/87744, in Python
    3.11 and 3.12).

    Python 3.13 calls ``os.kill`` in its place, and has another race: 1. asyncio's thread has collected the
    worker, and the loop does not know yet; 2. the system gives the pid to another process; 3. that one gets the
    signal (https://github.com/python/cpython/issues/127049). A pidfd always means the process that it was
    opened for. macOS has no pidfds, so there this race is left.
    """
    if process.returncode is not None:
        return
    with suppress(ProcessLookupError, ChildProcessError):
        pidfd = _pidfd_of(process.pid)
        try:
            _look_for_child(process.pid)
            if pidfd is None:
                os.kill(process.pid, number)
            else:
                signal.pidfd_send_signal(pidfd, number)
        finally:
            if pidfd is not None:
                os.close(pidfd)


def _pidfd_of(pid: int) -> int | None:
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
