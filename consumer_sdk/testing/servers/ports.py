"""Free ports on the loopback address, and one question over a socket, by which readiness is asked for."""

import asyncio
import atexit
import random
import socket
import struct
import sys
from collections import deque
from collections.abc import Iterable
from contextlib import ExitStack, suppress
from itertools import chain

from consumer_sdk.testing.servers.errors import PortInUseError

__all__ = ["HOST", "ask", "check_ports", "free_ports", "hold_ports", "knows_a_broker", "let_go"]

HOST = "127.0.0.1"


_FIRST, _END = 20_000, 32_000
"""Below the ports that systems give to outgoing connections (Linux from 32768, others from 49152).

With one of those, a client that tries again while a killed server is down can be given the
server's own port, and then connects to itself.
"""


_KEPT = 200
"""Ports that stay bound after they were found, those of the last servers."""
_found: deque[socket.socket] = deque()


def free_ports(count: int) -> list[int]:
    """Return so many different ports that nobody uses.

    No other process finds them until this one has found 200 more (on Linux; see `hold_ports`).
    """
    try:
        return [_found_port() for _ in range(count)]
    finally:
        let_go(_KEPT if sys.platform == "linux" else 0)


def let_go(kept: int) -> None:
    """Leave all but the last ports that were found to whoever wants them."""
    while len(_found) > kept:
        _found.popleft().close()


atexit.register(let_go, 0)


def _found_port() -> int:
    probe = socket.socket()
    _found.append(probe)
    # Not the lowest that is free: processes that look at the same moment would all find it.
    start = random.SystemRandom().randrange(_FIRST, _END)
    for port in chain(range(start, _END), range(_FIRST, start)):
        with suppress(OSError):
            probe.bind((HOST, port))
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            return port
    raise PortInUseError(f"no port of {HOST} from {_FIRST} to {_END - 1} is free: end some servers")


def hold_ports(ports: Iterable[int]) -> ExitStack:
    """Keep ports from `free_ports` of all processes, though their server is slow to start, or down.

    A socket that is bound and does not listen is no obstacle for a server on Linux, since servers
    set SO_REUSEADDR. Elsewhere it would be, and nothing is held.
    """
    with ExitStack() as stack:
        for port in ports if sys.platform == "linux" else ():
            held = stack.enter_context(socket.socket())
            held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            with suppress(OSError):  # it is in use: the start says so
                held.bind((HOST, port))
        return stack.pop_all()


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


_PATIENCE = 2.0  # seconds; a server that is starting may accept and then say nothing

# Kafka protocol: Metadata (api key 3) version 1 for no topics, correlation id 1, client "ready".
_METADATA = struct.pack(">hhih5si", 3, 1, 1, 5, b"ready", 0)


async def ask(host: str, port: int, question: bytes, *, size: int = -1) -> bytes:
    """Send the question and return the answer, empty when there is none.

    Args:
        host: where to connect to.
        port: likewise.
        question: what to send.
        size: bytes to wait for; -1 for all until the server closes the connection.
    """
    try:
        async with asyncio.timeout(_PATIENCE):
            reader, writer = await asyncio.open_connection(host, port)
            try:
                writer.write(question)
                return await (reader.read() if size < 0 else reader.readexactly(size))
            finally:
                writer.close()
                with suppress(OSError):
                    await writer.wait_closed()
    except (OSError, EOFError, TimeoutError):
        return b""


async def knows_a_broker(host: str, port: int) -> bool:
    """Return whether the Kafka there answers a metadata request and lists a live broker.

    A KRaft broker answers requests a little before it is a member of its own cluster; topics
    cannot be made until then.
    """
    question = struct.pack(">i", len(_METADATA)) + _METADATA
    answer = await ask(host, port, question, size=12)
    return len(answer) == 12 and struct.unpack(">iii", answer)[2] > 0  # noqa: PLR2004  length, correlation, brokers
