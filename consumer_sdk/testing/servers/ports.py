"""Free ports on the loopback address."""

import socket
from collections.abc import Iterable
from contextlib import ExitStack

from consumer_sdk.testing.servers.errors import PortInUseError

__all__ = ["HOST", "check_ports", "free_ports"]

HOST = "127.0.0.1"


def free_ports(count: int) -> list[int]:
    """Return so many different ports that nobody listened on a moment ago."""
    with ExitStack() as stack:
        # All are open at the same time, else the system may hand out one of them twice.
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind((HOST, 0))
        return [each.getsockname()[1] for each in sockets]


def check_ports(server: str, ports: Iterable[int]) -> None:
    """Raise when somebody listens on one of the ports.

    Raises:
        PortInUseError: names the port.
    """
    for port in ports:
        with socket.socket() as probe:
            # As the servers do: connections of the last run that linger are no obstacle.
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((HOST, port))
            except OSError as error:
                raise PortInUseError(
                    f"{server} cannot listen on {HOST}:{port}: {error.strerror}; "
                    "stop what listens there, or ask for no port to get a free one"
                ) from error
