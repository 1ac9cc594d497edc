"""Claims about the servers that the workers of a run share, in test runs of their own."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import time
import uuid
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from consumer_sdk.testing.servers.errors import ServerError
from consumer_sdk.testing.servers.ports import free_ports
from consumer_sdk.testing.servers.server import Server
from consumer_sdk.testing.servers.shared import ServerDesk, SharedServers, ask_desk
from tests.testing.servers.processes import left_after

pytestmark = pytest.mark.kinesis

TWO = """
import pytest

@pytest.mark.parametrize("number", range(4))
def test_address(kinesalite_server, number):
    print("given", kinesalite_server.endpoint_url)
"""

DIES = """
import os, signal, time
from pathlib import Path

def test_kills_it(kinesalite_server):
    port = kinesalite_server.address.rpartition(":")[2]
    for process in Path("/proc").glob("[0-9]*"):
        program, *_, last = (process / "cmdline").read_text().split("\\0")[:-1] or ["", ""]
        if program.endswith("/node") and last == port:
            os.kill(int(process.name), signal.SIGKILL)
    time.sleep(1)  # the kernel's: who owns the server looks when it hears of this test

def test_after_it():
    time.sleep(1)
"""

HANGS = """
import time

def test_that_hangs(kinesalite_server, tmp_path):
    (tmp_path.parent / "hangs").touch()
    time.sleep(600)
"""

CONFTEST = """
from consumer_sdk.testing.servers import KinesaliteServer

def pytest_consumer_sdk_server(name):
    return KinesaliteServer(port={port})
"""


def command(folder: Path, inner: str, *options: str) -> list[str]:
    """Starts pytest on one file."""
    (folder / "test_inner.py").write_text(inner, encoding="utf-8")
    program = [sys.executable, "-m", "pytest", "-rA", "-p", "no:cacheprovider"]
    # What the inner run does not need, and takes a second of each of its processes to import.
    program += [f"-pno:{plugin}" for plugin in ("anyio", "kinesis", "hypothesispytest")]
    return [*program, *options, "--rootdir", str(folder), str(folder)]


def run(folder: Path, inner: str, *options: str) -> subprocess.CompletedProcess[str]:
    """A whole run."""
    environment = {**os.environ, "CONSUMER_SDK_KINESIS": ""}
    return subprocess.run(
        command(folder, inner, *options),
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize("workers", [pytest.param("0", marks=pytest.mark.campaign), "2"])
def test_server_is_started_once_for_all_workers(tmp_path: Path, workers: str) -> None:
    """Whoever runs the test, the address is the same."""
    ran = run(tmp_path, TWO, "-n", workers)
    assert "4 passed" in ran.stdout
    assert len(set(re.findall(r"given (\S+)", ran.stdout))) == 1


@pytest.mark.campaign
@pytest.mark.parametrize("workers", ["0", "2"])
def test_server_that_ends_stops_the_run_and_is_named(tmp_path: Path, workers: str) -> None:
    """One clear line, instead of a failure of each test that comes after."""
    ran = run(tmp_path, DIES, "-n", workers)
    assert re.search(
        r"! .*kinesalite on 127.0.0.1:\d+ ended during the run; exit status -9", ran.stdout
    ), ran.stdout
    assert ran.returncode == 2


@pytest.mark.campaign
def test_hook_gives_the_server_settings(tmp_path: Path) -> None:
    """A conftest.py says how the server is made that all workers share."""
    (port,) = free_ports(1)
    (tmp_path / "conftest.py").write_text(CONFTEST.format(port=port), encoding="utf-8")
    ran = run(tmp_path, TWO, "-n", "2")
    assert set(re.findall(r"given (\S+)", ran.stdout)) == {f"http://127.0.0.1:{port}"}


def test_desk_answers_whoever_asked_while_it_was_busy_with_another() -> None:
    """A worker that finds the queue full would take itself for connected, and wait for ever."""
    desk = ServerDesk(SharedServers(_absent))
    try:
        with ThreadPoolExecutor(30) as workers, socket.create_connection(desk.address[:2]):
            time.sleep(0.1)  # the desk waits for what this one has to say
            asking = [workers.submit(ask_desk, desk.address, "none") for _ in range(30)]
            time.sleep(0.1)  # they are in the queue
        errors = [each.exception(timeout=300) for each in asking]
    finally:
        desk.close()
    assert {str(error) for error in errors} == {"none: there is no such server"}


def _absent(name: str) -> Server:
    raise ServerError(f"{name}: there is no such server")


@pytest.mark.campaign
def test_interrupted_parallel_run_leaves_nothing(tmp_path: Path) -> None:
    """Ctrl-C ends controller, workers and servers, and says so in one line."""
    mark = f"SHARED_TEST={uuid.uuid4()}"
    name, value = mark.split("=")
    with subprocess.Popen(
        command(tmp_path, HANGS, "-n", "2", "--basetemp", str(tmp_path / "inner")),
        cwd=tmp_path,
        env={**os.environ, "CONSUMER_SDK_KINESIS": "", name: value},
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,  # a terminal interrupts all of them
    ) as ran:
        assert ran.stdout is not None
        while not list(tmp_path.glob("inner/*/hangs")):
            assert ran.poll() is None
            time.sleep(0.05)
        os.killpg(ran.pid, signal.SIGINT)
        said = ran.stdout.read()
    assert "KeyboardInterrupt" in said
    assert "Traceback" not in said
    assert not left_after(300.0, mark)
