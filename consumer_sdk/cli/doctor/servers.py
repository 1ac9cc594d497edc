"""Checks the servers in URLs: their names, their ports and, with TLS, their certificates."""

from __future__ import annotations

import asyncio
import socket
import ssl
import time
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from urllib.parse import SplitResult, parse_qsl, urlsplit

from consumer_sdk.adapters.urls import shown
from consumer_sdk.cli.doctor.findings import Finding, of_certificate
from consumer_sdk.errors import ConfigurationError
from consumer_sdk.tls_trouble import TlsOptions, tls_trouble

__all__ = ["Server", "look_at", "servers_of"]

PATIENCE = 5.0
"""Seconds for each step."""
PORTS = {"kafka": 9092, "pulsar": 6650, "pulsar+ssl": 6651, "zookeeper": 2181}
WEB = {"http": 80, "https": 443}
TLS = TlsOptions(
    trust="have this machine trust its authority (SSL_CERT_FILE names a file of them)",
    hostname="have it made for this name",
    certificate="give the consumer one",
    on="ask for TLS",
    off="ask without TLS, or name its TLS port",
)


@dataclass(frozen=True, slots=True)
class Server:
    """A server to connect to.

    Attributes:
        ca_file: the authorities that a client is told to trust; None: the system's.
    """

    host: str
    port: int
    is_tls: bool = False
    ca_file: str | None = None

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"


def servers_of(url: str) -> list[Server]:
    """The servers in a consumer's or a store's URL; a file has none, nor has Kinesis without an endpoint.

    Raises:
        ConfigurationError: one of them, or the URL of an option, is malformed.
    """
    parts = _split("", url)
    options = dict(parse_qsl(parts.query))
    names = [name for name in ("admin_url", "endpoint_url") if name in options]
    others = [(f"{name}=", options[name], _split(f"{name}=", options[name])) for name in names]
    own = [("", url, parts)] if parts.scheme in PORTS else []
    return [
        *(each for place in own for each in _of_list(*place, PORTS, options)),
        *(each for place in others for each in _of_list(*place, WEB, options)),
    ]


def _split(what: str, url: str) -> SplitResult:
    try:
        return urlsplit(url)
    except ValueError as error:
        raise ConfigurationError(f"{what}{shown(url)}: this is no URL: {error}") from error


def _of_list(
    what: str, url: str, parts: SplitResult, ports: Mapping[str, int], options: Mapping[str, str]
) -> list[Server]:
    if parts.scheme not in ports:
        raise ConfigurationError(f"{what}{shown(url)}: begin it with {' or '.join(ports)}, and ://")
    try:
        return _servers(parts, ports[parts.scheme], options)
    except ValueError as error:
        raise ConfigurationError(
            f"{what}{shown(url)}: a port is a number from 1 to 65535: {error}"
        ) from error


def _servers(parts: SplitResult, usual: int, options: Mapping[str, str]) -> list[Server]:
    protocol = options.get("security_protocol", "")
    is_tls = parts.scheme in {"https", "pulsar+ssl"} or protocol.endswith("SSL")
    hosts = [urlsplit(f"//{text}") for text in parts.netloc.split(",") if text]
    return [
        Server(
            host.hostname or "",
            host.port or usual,
            is_tls,
            options.get("tls_trust_certs"),
        )
        for host in hosts
    ]


async def look_at(server: Server) -> AsyncIterator[Finding]:
    """Checks a server's name, port and certificate; ends at the first check that fails."""
    try:
        async with asyncio.timeout(PATIENCE):
            loop = asyncio.get_running_loop()
            found = await loop.getaddrinfo(server.host, server.port, type=socket.SOCK_STREAM)
    except (OSError, TimeoutError, UnicodeError) as error:
        todo = "see that the name is right, and that this machine's resolver knows it"
        yield Finding("FAIL", f"DNS {server.host}", f"is not found: {_text(error)}", todo)
        return
    addresses = ", ".join(sorted({str(address[0]) for *_, address in found}))
    yield Finding("ok", f"DNS {server.host}", addresses)
    try:
        _reader, writer = await asyncio.wait_for(
            asyncio.open_connection(server.host, server.port), PATIENCE
        )
    except (OSError, TimeoutError) as error:
        todo = "see that the server runs, that the port is right, and that no firewall is between"
        yield Finding("FAIL", f"TCP {server}", f"no connection: {_text(error)}", todo)
        return
    writer.transport.abort()
    yield Finding("ok", f"TCP {server}", "connects")
    if server.is_tls:
        yield await _tls(server)


async def _tls(server: Server) -> Finding:
    try:
        context = ssl.create_default_context(cafile=server.ca_file)
        _reader, writer = await asyncio.wait_for(
            asyncio.open_connection(server.host, server.port, ssl=context), PATIENCE
        )
    except (OSError, TimeoutError) as error:
        why = tls_trouble(error, str(server), TLS)
        if why is None:
            return Finding("FAIL", f"TLS {server}", f"no handshake: {_text(error)}", TLS.off)
        found, _, todo = why.removeprefix("TLS: ").rpartition(": ")
        return Finding("FAIL", f"TLS {server}", found, todo)
    ends = ssl.cert_time_to_seconds(writer.get_extra_info("peercert")["notAfter"])
    writer.transport.abort()
    return of_certificate(str(server), ends, time.time())


def _text(error: BaseException) -> str:
    return str(error) or f"no answer within {PATIENCE:g} s"
