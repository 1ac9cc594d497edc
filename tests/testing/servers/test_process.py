"""Claims about one server process, with a program that is quicker to start than a server."""

import asyncio
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from consumer_sdk.testing.servers import ServerProcess
from tests.testing.servers.processes import is_gone, is_gone_soon

SLEEP = shutil.which("sleep") or "/bin/sleep"
SHELL = shutil.which("sh") or "/bin/sh"

STARTER = """
import sys, threading, time
from pathlib import Path
from consumer_sdk.testing.servers import ServerProcess

def start():
    folder = Path(sys.argv[1])
    process = ServerProcess(sys.argv[3:], log=folder / "log", directory=folder)
    if sys.argv[2] == "paused":
        process.pause()
    print(process.pid, flush=True)
    globals()["kept"] = process

thread = threading.Thread(target=start)
thread.start()
thread.join()
print("thread ended", flush=True)
time.sleep(600)
"""


@pytest.fixture
def sleeper(tmp_path: Path) -> Iterator[ServerProcess]:
    """Give a process that does nothing."""
    process = ServerProcess([SLEEP, "600"], log=tmp_path / "log", directory=tmp_path)
    yield process
    process.kill()


def test_started_process_has_the_pid_that_the_caller_knows(tmp_path: Path) -> None:
    """The guard becomes the server: what the server thinks is its pid is ours to signal."""
    process = ServerProcess([SHELL, "-c", "echo $$"], log=tmp_path / "log", directory=tmp_path)
    while not process.has_ended:
        time.sleep(0.01)
    assert (tmp_path / "log").read_text(encoding="utf-8").split() == [str(process.pid)]


def test_started_process_has_a_session_of_its_own(sleeper: ServerProcess) -> None:
    """Ctrl-C in the terminal does not reach the server before its owner can end it."""
    assert os.getsid(sleeper.pid) == sleeper.pid


async def test_stopped_process_is_gone(sleeper: ServerProcess) -> None:
    """When stop returns, the process has ended by SIGTERM."""
    await sleeper.stop(patience=300)
    assert is_gone(sleeper.pid)
    assert sleeper.exit_status == -signal.SIGTERM


async def test_process_that_ignores_sigterm_is_killed(tmp_path: Path) -> None:
    """Stop is bounded: patience, then SIGKILL."""
    stubborn = [SHELL, "-c", "trap '' TERM; echo ready; while :; do sleep 0.1; done"]
    process = ServerProcess(stubborn, log=tmp_path / "log", directory=tmp_path)
    while "ready" not in (tmp_path / "log").read_text(encoding="utf-8"):
        time.sleep(0.01)  # noqa: ASYNC251  nothing else runs in this loop
    await process.stop(patience=0.1)
    assert process.exit_status == -signal.SIGKILL


async def test_paused_process_can_be_stopped(sleeper: ServerProcess) -> None:
    """A stopped process would never see SIGTERM: stop resumes it first."""
    sleeper.pause()
    assert sleeper.is_paused
    await sleeper.stop(patience=300)
    assert sleeper.exit_status == -signal.SIGTERM


async def test_cancelled_stop_leaves_no_process(tmp_path: Path) -> None:
    """A stop that is cancelled kills the process."""
    stubborn = [SHELL, "-c", "trap '' TERM; echo ready; while :; do sleep 0.1; done"]
    process = ServerProcess(stubborn, log=tmp_path / "log", directory=tmp_path)
    stopping = asyncio.create_task(process.stop(patience=60))
    await asyncio.sleep(0)
    stopping.cancel()
    with pytest.raises(asyncio.CancelledError):
        await stopping
    assert is_gone(process.pid)


@pytest.mark.parametrize("state", ["running", "paused"])
def test_process_ends_with_a_killed_owner_and_outlives_its_thread(
    tmp_path: Path, state: str
) -> None:
    """SIGKILL of the owner ends the server; the end of the thread that started it does not."""
    starter = [sys.executable, "-c", STARTER, str(tmp_path), state, SLEEP, "600"]
    with subprocess.Popen(starter, stdout=subprocess.PIPE, text=True) as owner:
        assert owner.stdout is not None
        pid = int(owner.stdout.readline())
        assert owner.stdout.readline() == "thread ended\n"
        assert not is_gone(pid)
        owner.kill()
    assert is_gone_soon(pid)
