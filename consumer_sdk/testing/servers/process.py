"""One server process: started under a guard, ended by its own process id only."""

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import BinaryIO, final

__all__ = ["ServerProcess"]

_GUARD = Path(__file__).with_name("guard.py")
_POLL = 0.02  # seconds; a server's end is seen this late at most


@final
class ServerProcess:
    """A running command that ends with this process at the latest.

    It is bound to no event loop and to no thread: it may be started in one loop and stopped in
    another, as session-scoped fixtures do.

    It has a session of its own, so that Ctrl-C in the terminal reaches us and not the server.

    Args:
        command: program (an absolute path) and arguments.
        log: file that both output streams are appended to.
        directory: the working folder.
    """

    def __init__(self, command: Sequence[str], *, log: Path, directory: Path) -> None:
        with log.open("ab") as output:
            self._process = _spawn(command, output, directory)
        self._is_paused = False

    def __repr__(self) -> str:
        state = f"exit status {self.exit_status}" if self.has_ended else "running"
        return f"<ServerProcess pid={self.pid} {state}>"

    @property
    def pid(self) -> int:
        """The server's process id."""
        return self._process.pid

    @property
    def has_ended(self) -> bool:
        """Whether the process is gone."""
        return self._process.poll() is not None

    @property
    def exit_status(self) -> int | None:
        """Its exit status, or minus the signal that ended it; None while it runs."""
        return self._process.poll()

    @property
    def is_paused(self) -> bool:
        """Whether it was paused and not resumed since."""
        return self._is_paused and not self.has_ended

    def pause(self) -> None:
        """Stop it in its tracks (SIGSTOP): connections stay open, nothing answers."""
        self._process.send_signal(signal.SIGSTOP)
        self._is_paused = True
        # The signal only asks: on a busy machine a thread of the server could still answer. The
        # parent is told when all have stopped. WNOWAIT leaves an exit status to Popen. macOS has
        # no waitid before Python 3.13.
        if hasattr(os, "waitid") and not self.has_ended:
            os.waitid(os.P_PID, self.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)

    def resume(self) -> None:
        """Let a paused one go on (SIGCONT)."""
        self._process.send_signal(signal.SIGCONT)
        self._is_paused = False

    async def stop(self, *, patience: float) -> None:
        """Ask it to end (SIGTERM), and kill it when it has not after `patience` seconds.

        Cancellation: kills it at once.
        """
        self.resume()  # a stopped process would not see SIGTERM
        self._process.terminate()
        try:
            await self._ended(patience)
        finally:
            self.kill()

    def kill(self) -> None:
        """End it at once (SIGKILL); when this returns, it is gone. Idempotent."""
        self._process.kill()
        self._process.wait()

    async def _ended(self, patience: float) -> None:
        deadline = time.monotonic() + patience
        while not self.has_ended and time.monotonic() < deadline:  # noqa: ASYNC110  bound to no loop
            await asyncio.sleep(_POLL)


def _spawn(command: Sequence[str], output: BinaryIO, directory: Path) -> subprocess.Popen[bytes]:
    closing, ready = os.pipe()
    # -I -S: the guard needs nothing of the environment, and starts in 10 ms instead of 40.
    guard = [sys.executable, "-I", "-S", str(_GUARD), str(os.getpid()), str(ready)]
    with os.fdopen(closing, "rb") as pipe:
        try:
            process = subprocess.Popen(  # noqa: S603  servers that the caller configured
                [*guard, *command],
                cwd=directory,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                pass_fds=(ready,),
            )
        finally:
            os.close(ready)
        pipe.read()  # ends when the command has taken over
    return process
