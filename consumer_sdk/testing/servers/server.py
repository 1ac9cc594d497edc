"""What all servers have in common: a folder, ports, a way to tell readiness, and a process.

The process starts under a guard, and is ended by its own process id only.
"""

import asyncio
import os
import signal
import subprocess
import sys
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, ClassVar, Self, final

from consumer_sdk.testing.servers.errors import ServerError, ServerStartError, tail
from consumer_sdk.testing.servers.ports import HOST, check_ports, free_ports, hold_ports

__all__ = ["Server", "ServerProcess"]

_GUARD = Path(__file__).with_name("guard.py")
_END_POLL = 0.02  # seconds; a server's end is seen this late at most


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
            await asyncio.sleep(_END_POLL)


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


_POLL = 0.05  # seconds between two looks at a starting server


class Server(ABC):
    """A real server on 127.0.0.1, as an async context manager.

    Its files lie in `directory` and outlive `stop`, `kill` and `restart`. Without a directory of the
    caller's it is a temporary one, which `aclose` removes. The server ends when this process ends,
    however it ends.

    Concurrency: one caller at a time. It is bound to no event loop: started in one, it may be
    stopped in another.

    Args:
        directory: where configuration, data and log lie; made when absent.
        port: the port for clients; a free one when None. It stays the same over restarts.
        start_timeout: seconds until a server that is not ready counts as failed.
    """

    name: ClassVar[str]
    port_count: ClassVar[int] = 1

    def __init__(
        self,
        *,
        directory: Path | str | None = None,
        port: int | None = None,
        start_timeout: float = 600.0,
    ) -> None:
        self._temporary: tempfile.TemporaryDirectory[str] | None = None
        self._directory = None if directory is None else Path(directory).absolute()
        self._port = port
        self._ports: list[int] = []
        self._held = ExitStack()
        self._start_timeout = start_timeout
        self._process: ServerProcess | None = None

    def __repr__(self) -> str:
        return (
            f"<{type(self).__name__} {self.address if self._ports else 'unused'} {self._process}>"
        )

    @property
    def directory(self) -> Path:
        """The folder of configuration, data and log."""
        if self._directory is None:
            self._temporary = tempfile.TemporaryDirectory(prefix=f"consumer_sdk-{self.name}-")
            self._directory = Path(self._temporary.name)
        return self._directory

    @property
    def log(self) -> Path:
        """The file with everything that the server printed, over all its starts."""
        return self.directory / "server.log"

    @property
    def ports(self) -> Sequence[int]:
        """The ports it listens on; the first is the clients'."""
        if not self._ports:
            first = [] if self._port is None else [self._port]
            self._ports = first + free_ports(self.port_count - len(first))
            self._held = hold_ports(self._ports)
        return self._ports

    @property
    def address(self) -> str:
        """``host:port`` for clients."""
        return f"{HOST}:{self.ports[0]}"

    @property
    def is_running(self) -> bool:
        """Whether its process is there (it may be paused)."""
        return self._process is not None and not self._process.has_ended

    @property
    def pid(self) -> int:
        """The process id of the server.

        Raises:
            ServerError: it is not running.
        """
        return self._running().pid

    @property
    def last_words(self) -> str:
        """What is known of its end, in a line: the exit status and the end of the log."""
        status = None if self._process is None else self._process.exit_status
        return f"exit status {status}, last line of its log: {tail(self.log, lines=1)}"

    async def __aenter__(self) -> Self:
        try:
            await self.start()
        except BaseException:
            await self.aclose()
            raise
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.aclose()

    async def start(self) -> None:
        """Start it and wait until it answers; nothing happens when it runs already.

        Cancellation: kills the half-started server.

        Raises:
            ServerError: it cannot be started; the subclass says why.
        """
        if self.is_running:
            return
        program = await asyncio.to_thread(self._find_program)
        self.directory.mkdir(parents=True, exist_ok=True)
        check_ports(self.name, self.ports)
        command = await asyncio.to_thread(self._prepare, program)
        self._process = ServerProcess(command, log=self.log, directory=self.directory)
        try:
            await self._until_ready(self._process)
        except BaseException:
            self._process.kill()
            raise

    async def stop(self, *, patience: float = 20.0) -> None:
        """End it in its own way, or by force after `patience` seconds; idempotent."""
        if self._process is not None and self.is_running:
            await self._process.stop(patience=patience)

    async def kill(self) -> None:
        """End it at once, as a crash would (SIGKILL); idempotent."""
        if self._process is not None:
            self._process.kill()

    async def restart(self) -> None:
        """Start it again on the same files and ports; one that runs is stopped first."""
        await self.stop()
        await self.start()

    def pause(self) -> None:
        """Stop it in its tracks: connections stay open, nothing answers, until `resume`."""
        self._running().pause()

    def resume(self) -> None:
        """Let a paused server go on."""
        self._running().resume()

    async def aclose(self) -> None:
        """Stop it and remove its temporary folder; idempotent."""
        try:
            await self.stop()
        finally:
            self._held.close()
            if self._temporary is not None:
                self._temporary.cleanup()
                self._temporary = self._directory = None

    @abstractmethod
    def _find_program(self) -> Path:
        """Return what runs it, or raise before anything is written; may block, runs in a thread."""

    @abstractmethod
    def _prepare(self, program: Path, /) -> list[str]:
        """Write the configuration and return the command; may block, runs in a thread."""

    @abstractmethod
    async def _is_ready(self) -> bool:
        """Return whether it serves clients now; never raises for one that does not yet."""

    def _running(self) -> ServerProcess:
        if self._process is None or self._process.has_ended:
            raise ServerError(f"{self.name} is not running: call start() first")
        return self._process

    async def _until_ready(self, process: ServerProcess) -> None:
        deadline = time.monotonic() + self._start_timeout
        while not await self._is_ready():
            if process.has_ended:
                raise self._failure(f"ended at its start (exit status {process.exit_status})")
            if time.monotonic() > deadline:
                raise self._failure(f"was not ready after {self._start_timeout:g} s")
            await asyncio.sleep(_POLL)

    def _failure(self, what: str) -> ServerStartError:
        return ServerStartError(
            f"{self.name} on {self.address} {what}; the end of {self.log}:\n{tail(self.log)}"
        )
