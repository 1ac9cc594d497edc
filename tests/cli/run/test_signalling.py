"""Signals to children that may have just ended: their exit status stays what it was."""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import signal
import threading
from asyncio.subprocess import PIPE, Process
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from consumer_sdk.cli.run.supervisor import Supervisor, send_signal
from tests.cli.run.test_run import script, started
from tests.integration.field import until
from tests.runtime.event_loops import run_on

pytestmark = pytest.mark.skipif(not hasattr(os, "waitid"), reason="macOS before Python 3.13")


@pytest.fixture
def reaping(monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """The thread of asyncio gets the status of a child only after this is set, as on a busy machine."""
    may_begin, waitpid = threading.Event(), os.waitpid

    def late(pid: int, options: int) -> tuple[int, int]:
        if threading.current_thread() is not threading.main_thread():
            os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
            may_begin.wait()
        return waitpid(pid, options)

    monkeypatch.setattr("os.waitpid", late)
    yield may_begin
    may_begin.set()


def until_its_end(pid: int) -> None:
    """Blocks the loop, and leaves the status to it."""
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)


async def cat() -> Process:
    """A child that ends with its stdin."""
    return await asyncio.create_subprocess_exec("cat", stdin=PIPE, stdout=PIPE)


async def test_worker_that_has_just_ended_does_not_fail_the_service(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, reaping: threading.Event
) -> None:
    """Ctrl-C in a terminal reaches the workers too: one may have drained before it is told."""
    caplog.set_level(logging.INFO)
    command = script(tmp_path, '[ "$CONSUMER_SDK_WORKER" = 0 ] && exit 0\nexec cat')
    running = asyncio.create_task(Supervisor([str(command)], 2).run())
    await until(lambda: len(started(caplog)) == 2, "two workers")
    ended, other = started(caplog)
    await asyncio.to_thread(until_its_end, ended)
    os.kill(os.getpid(), signal.SIGTERM)
    await asyncio.to_thread(until_its_end, other)  # both have been told
    reaping.set()
    assert await running == 0
    assert "will report returncode 255" not in caplog.text


@pytest.mark.parametrize("kind", ["asyncio", "uvloop"])
def test_status_of_a_child_that_has_just_ended_is_its_own(
    kind: str, reaping: threading.Event
) -> None:
    """The loop gets it, and not who sends a signal."""

    async def main() -> None:
        reads, writes = os.pipe()
        process = await asyncio.create_subprocess_exec("sh", "-c", "read x; exit 3", stdin=reads)
        os.close(reads)
        os.close(writes)  # it ends, and the loop has not seen it
        until_its_end(process.pid)
        send_signal(process, signal.SIGTERM)
        reaping.set()
        assert await process.wait() == 3
        send_signal(process, signal.SIGTERM)

    run_on(kind, main)


@pytest.mark.parametrize("kind", ["asyncio", "uvloop"])
def test_child_that_runs_is_ended(kind: str) -> None:
    """By the signal that was sent."""

    async def main() -> None:
        process = await cat()
        send_signal(process, signal.SIGKILL)
        await process.communicate()
        assert process.returncode == -signal.SIGKILL

    run_on(kind, main)


@pytest.mark.parametrize("error", [errno.ENOSYS, errno.EPERM, errno.EMFILE, None])
async def test_child_is_ended_where_there_are_no_pidfds(
    error: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An old kernel, a sandbox, too many open files, macOS."""

    def refuse(pid: int) -> int:
        raise OSError(error, f"no pidfd for {pid}")

    if error is None:
        monkeypatch.delattr("os.pidfd_open", raising=False)
    else:
        monkeypatch.setattr("os.pidfd_open", refuse, raising=False)
    process = await cat()
    send_signal(process, signal.SIGKILL)
    await process.communicate()
    assert process.returncode == -signal.SIGKILL


@pytest.mark.parametrize("has_pidfds", [True, False])
async def test_process_of_others_with_the_pid_of_an_ended_child_gets_no_signal(
    monkeypatch: pytest.MonkeyPatch, *, has_pidfds: bool
) -> None:
    """(1) asyncio's thread collects a child; (2) its pid is given anew; (3) the loop is told of (1)."""
    if not has_pidfds:
        monkeypatch.delattr("os.pidfd_open", raising=False)
    command = "exec 3<&0; cat <&3 & echo $!; wait"
    shell: Any = await asyncio.create_subprocess_exec("sh", "-c", command, stdin=PIPE, stdout=PIPE)
    grandchild = int(await shell.stdout.readline())
    send_signal(cast("Process", SimpleNamespace(pid=grandchild, returncode=None)), signal.SIGKILL)
    assert (await shell.communicate(b"it answers"))[0] == b"it answers"
