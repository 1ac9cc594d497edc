"""Claims about the ZooKeeper server, and about servers that end with a test run."""

import asyncio
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from kazoo.client import KazooClient

from consumer_sdk.testing.servers import ServerStartError, ZooKeeperEndpoint, ZooKeeperServer
from consumer_sdk.testing.servers.ports import HOST, ask
from tests.testing.servers.processes import is_gone, is_gone_soon

pytestmark = pytest.mark.zookeeper

RUN = """
import time

def test_that_hangs(zookeeper_server, capsys):
    with capsys.disabled():
        print("server", zookeeper_server.pid, flush=True)
    time.sleep(600)
"""


def exchange(server: ZooKeeperEndpoint, write: bytes | None = None) -> bytes:
    """Write the node when asked to, and return what it holds."""
    client = KazooClient(hosts=server.hosts)
    client.start(timeout=300)
    try:
        if write is not None:
            client.create("/node", write)
        value: bytes = client.get("/node")[0]
        return value
    finally:
        client.stop()
        client.close()


async def test_shared_server_answers(zookeeper_server: ZooKeeperEndpoint) -> None:
    """The fixture's server serves."""
    host, _, port = zookeeper_server.hosts.rpartition(":")
    while b"Mode:" not in await ask(host, int(port), b"srvr"):
        pass  # it answers late on a busy machine


@pytest.mark.campaign
async def test_nodes_survive_kill_restart_and_pause(own_zookeeper_server: ZooKeeperServer) -> None:
    """A restart after SIGKILL has the nodes; a paused server says nothing until resumed."""
    server = own_zookeeper_server
    await asyncio.to_thread(exchange, server, b"kept")
    before = server.pid
    await server.kill()
    assert is_gone(before)
    await server.restart()
    assert await asyncio.to_thread(exchange, server) == b"kept"

    server.pause()
    assert await ask(HOST, server.ports[0], b"ruok") == b""
    server.resume()
    while await ask(HOST, server.ports[0], b"ruok") != b"imok":
        pass  # it answers late on a busy machine


@pytest.mark.campaign
async def test_data_in_a_given_folder_outlive_the_server(tmp_path: Path) -> None:
    """A second server on the same folder has the first one's nodes."""
    async with ZooKeeperServer(directory=tmp_path) as first:
        await asyncio.to_thread(exchange, first, b"kept")
    async with ZooKeeperServer(directory=tmp_path) as second:
        assert await asyncio.to_thread(exchange, second) == b"kept"


async def test_death_at_start_shows_the_end_of_the_log() -> None:
    """The error names the setting."""
    with pytest.raises(ServerStartError, match="NumberFormatException"):
        async with ZooKeeperServer(properties={"tickTime": "soon"}):
            pass


@pytest.mark.parametrize(
    "number",
    [
        pytest.param(signal.SIGINT, marks=pytest.mark.campaign, id="ctrl-c"),
        pytest.param(signal.SIGKILL, id="sigkill"),
    ],
)
def test_ended_test_run_leaves_no_server(tmp_path: Path, number: signal.Signals) -> None:
    """However pytest ends, the servers of its fixtures end with it."""
    (tmp_path / "test_inner.py").write_text(RUN, encoding="utf-8")
    command = [sys.executable, "-m", "pytest", "-q", "--rootdir", str(tmp_path), str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=tmp_path) as run:
        assert run.stdout is not None
        announced = next(line for line in run.stdout if "server " in line)
        pid = int(announced.split()[-1])
        run.send_signal(number)
        run.stdout.read()
    assert is_gone_soon(pid)


@pytest.mark.campaign
def test_command_line_runs_a_server_until_ctrl_c(tmp_path: Path) -> None:
    """``python -m consumer_sdk.testing.servers`` prints the address, and ends clean."""
    command = [sys.executable, "-m", "consumer_sdk.testing.servers", "zookeeper"]
    command += ["--dir", str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as run:
        assert run.stdout is not None
        words = run.stdout.readline().replace(",", "").split()
        run.send_signal(signal.SIGINT)
        assert run.wait() == 0
    assert words[:3] == ["ZooKeeper", "listens", "on"]
    assert is_gone(int(words[words.index("pid") + 1]))
