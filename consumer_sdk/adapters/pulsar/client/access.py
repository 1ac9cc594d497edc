"""Finds out why Pulsar refuses a connection: asks the broker, because the native client only says ``Timeout``.

The first command of a connection is CONNECT, which shows the credentials; the broker answers with
CONNECTED, or with ERROR and a reason. The client only logs that, and tries again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from urllib.parse import urlsplit

from consumer_sdk.adapters.pulsar.client.connection import Connection
from consumer_sdk.tls_trouble import TlsOptions, answer_of, find_trouble

__all__ = ["find_refusal"]

CONNECT, ERROR = 2, 14
TYPE, CODE, REASON = 1, 2, 3
"""Fields of BaseCommand and of CommandError, as PulsarApi.proto numbers them."""
DENIED = (3, 4)
"""Codes of errors that time does not fix: AuthenticationError, AuthorizationError."""
VERSION, AUTH_DATA, PROTOCOL, AUTH_METHOD = 1, 3, 4, 5
"""Fields of CommandConnect."""
PROTOCOL_VERSION = 19
SIZES = 8
"""Bytes before a command."""
MORE = 0x80
"""In a byte of a number: another one follows."""
NUMBER, BYTES = 0, 2
"""What a field holds, in the low bits of its key."""
PORTS = {"pulsar": 6650, "pulsar+ssl": 6651}

OPTIONS = TlsOptions(
    trust="give tls_trust_certs= the file of the authority that has signed it",
    hostname="give tls_validate_hostname=False",
    certificate="give tls_certificate= and tls_key=",
    on="give service_url='pulsar+ssl://…', or the port without TLS",
    off="give service_url='pulsar://…', or the brokerServicePortTls",
)


async def find_refusal(connection: Connection) -> str | None:
    """The reason of the first broker that refuses this connection; None if none does."""
    parts = urlsplit(connection.service_url)
    question = _connect(*await _credentials(connection))
    tls = connection.ssl_context() if parts.scheme == "pulsar+ssl" else None
    for server in parts.netloc.split(","):
        place = urlsplit(f"//{server}")
        host, port = place.hostname or "", place.port or PORTS[parts.scheme]
        found = await find_trouble(host, port, question, tls, OPTIONS)
        if found is None and connection.oauth2 is None:  # whose token is the client's to fetch
            try:
                found = _reason(await answer_of(host, port, question, tls), f"{host}:{port}")
            except (OSError, TimeoutError):
                continue
        if found is not None:
            return found
    return None


def _reason(answer: bytes, server: str) -> str | None:
    command = dict(_fields(answer[SIZES:]))
    if command.get(TYPE) != ERROR:
        return None
    body = command.get(ERROR)
    error = dict(_fields(body)) if isinstance(body, bytes) else {}
    if error.get(CODE) not in DENIED:  # the broker is not ready, or has too many connections
        return None
    reason = error.get(REASON)
    text = reason.decode("utf-8", "replace") if isinstance(reason, bytes) else ""
    return (
        f"{server} refuses this client: {text}: check that token=, oauth2= or tls_certificate= is one "
        f"that the broker knows, and is still valid"
    )


async def _credentials(connection: Connection) -> tuple[bytes, bytes]:
    """The name of the method, and what it shows."""
    token = connection.token
    if token is not None:
        text = token if isinstance(token, str) else await asyncio.to_thread(token)
        return b"token", text.encode()
    return (b"tls", b"") if connection.tls_certificate is not None else (b"", b"")


# -- the protocol -----------------------------------------------------------------------------


def _connect(method: bytes, shown: bytes) -> bytes:
    body = _bytes(VERSION, b"consumer-sdk") + _number(PROTOCOL, PROTOCOL_VERSION)
    if method:
        body += _bytes(AUTH_METHOD, method) + _bytes(AUTH_DATA, shown)
    command = _number(TYPE, CONNECT) + _bytes(CONNECT, body)
    return (len(command) + 4).to_bytes(4) + len(command).to_bytes(4) + command


def _number(field: int, value: int) -> bytes:
    return _varint(field << 3) + _varint(value)


def _bytes(field: int, value: bytes) -> bytes:
    return _varint(field << 3 | BYTES) + _varint(len(value)) + value


def _varint(value: int) -> bytes:
    found = bytearray()
    while value >= MORE:
        found.append(value & (MORE - 1) | MORE)
        value >>= 7
    return bytes([*found, value])


def _fields(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Numbers and bytes of a message, by their fields; up to what is neither, or is cut off."""
    at = 0
    while at < len(data):
        key, at = _read(data, at)
        value, at = _read(data, at)
        if key & 7 == BYTES:
            yield key >> 3, data[at : at + value]
            at += value
        elif key & 7 == NUMBER:
            yield key >> 3, value
        else:
            return


def _read(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    for byte in data[at:]:
        at += 1
        value |= (byte & (MORE - 1)) << shift
        shift += 7
        if byte < MORE:
            break
    return value, at
