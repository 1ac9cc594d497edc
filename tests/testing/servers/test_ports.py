"""Claims about ports of servers."""

import socket
import sys
from unittest.mock import patch

import pytest

from consumer_sdk.testing.servers import PortInUseError, ports
from consumer_sdk.testing.servers.ports import HOST, check_ports, free_ports, hold_ports

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="ports are held on Linux alone")


def test_held_port_is_found_by_nobody_else_and_its_server_can_listen() -> None:
    """Servers take seconds to start: two that start at a time had the same port once in a while."""
    (port,) = free_ports(1)
    with (
        hold_ports([port]),
        patch.multiple(ports, _FIRST=port, _END=port + 1),
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


def test_port_that_is_let_go_can_be_found_again() -> None:
    """When its server is closed."""
    (port,) = free_ports(1)
    hold_ports([port]).close()
    with patch.multiple(ports, _FIRST=port, _END=port + 1):
        assert free_ports(1) == [port]
