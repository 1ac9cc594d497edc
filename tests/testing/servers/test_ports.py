"""Claims about ports of servers."""

import socket
import subprocess
import sys
from collections.abc import Iterator
from unittest.mock import patch

import pytest

from consumer_sdk.testing.servers import PortInUseError, ports
from consumer_sdk.testing.servers.ports import HOST, check_ports, free_ports, hold_ports, let_go

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="ports are held on Linux alone")


@pytest.fixture
def port() -> Iterator[int]:
    """The only port that can be found; nobody has it."""
    (port,) = free_ports(1)
    let_go(0)
    with patch.multiple(ports, _FIRST=port, _END=port + 1):
        yield port
    let_go(0)


def test_held_port_is_found_by_nobody_else_and_its_server_can_listen(port: int) -> None:
    """Servers take seconds to start: two that start at a time had the same port once in a while."""
    with (
        hold_ports([port]),
        socket.socket() as server,
    ):
        with pytest.raises(PortInUseError, match="no port"):
            free_ports(1)
        check_ports("a server", [port])
        server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        server.bind((HOST, port))
        server.listen()
        with pytest.raises(PortInUseError, match=f"{HOST}:{port}"):
            check_ports("another", [port])


def test_port_that_is_let_go_can_be_found_again(port: int) -> None:
    """When its server is closed."""
    hold_ports([port]).close()
    assert free_ports(1) == [port]


def test_port_that_was_found_is_not_found_again_by_another_process(port: int) -> None:
    """A server's settings name ports (of its controller, of TLS) seconds before it listens there."""
    assert free_ports(1) == [port]
    script = "import socket, sys; socket.socket().bind((sys.argv[1], int(sys.argv[2])))"
    other = subprocess.run(
        [sys.executable, "-c", script, HOST, str(port)], capture_output=True, text=True, check=False
    )
    assert "Address already in use" in other.stderr


def test_server_can_listen_on_a_port_that_was_found(port: int) -> None:
    """On its own too: each of them sets SO_REUSEADDR."""
    assert free_ports(1) == [port]
    check_ports("a server", [port])
    with socket.create_server((HOST, port)):
        pass


def test_only_the_last_ports_that_were_found_are_kept() -> None:
    """A process may open a thousand files, and start a thousand servers."""
    let_go(0)
    found = [port for _ in range(3) for port in free_ports(100)]
    assert len(set(found)) == len(found)
    with pytest.raises(OSError, match="in use"), socket.socket() as probe:
        probe.bind((HOST, found[-1]))
    with socket.socket() as probe:
        probe.bind((HOST, found[0]))
    let_go(0)
