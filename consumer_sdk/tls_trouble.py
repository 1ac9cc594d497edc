"""Asks a server why a client gets no connection, if the client does not tell.

A client that reconnects by itself says after a while that there is no connection. The server may be down, its certificate
may be for another name, it may want a client certificate, or it may speak no TLS. Waiting helps only if it is down.
"""

from __future__ import annotations

import asyncio
import ssl
from contextlib import suppress
from typing import NamedTuple

__all__ = ["TlsOptions", "answer_of", "find_trouble", "tls_trouble", "trusting"]

PATIENCE = 2.0
"""Seconds that each question may take."""
ENOUGH = 4096
"""Bytes of an answer that are read."""

REFUSALS = ("CERTIFICATE", "UNKNOWN_CA", "HANDSHAKE_FAILURE", "ACCESS_DENIED")
"""In the name of the alert of a server that wants a client certificate, or another one."""
ALERT = b"\x15\x03"
"""How a server that speaks TLS begins its answer to a client that does not, if it answers (RFC 8446, 5.1)."""
NO_TLS = ("WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE", "UNEXPECTED_MESSAGE", "HTTP_REQUEST")


class TlsOptions(NamedTuple):
    """What to do about each trouble, with the names of a client's own options.

    Attributes:
        trust: how to trust an authority.
        hostname: how to take a certificate of another name.
        certificate: how to show one of ours.
        on, off: how to ask for TLS, and how not to.
    """

    trust: str
    hostname: str
    certificate: str
    on: str
    off: str


def tls_trouble(error: BaseException, server: str, options: TlsOptions) -> str | None:
    """What a failure of TLS means, and what to do. None: it is no such failure, or the server speaks no TLS.

    Args:
        server: ``host:port``.
    """
    if isinstance(error, ssl.SSLCertVerificationError):
        return _distrust(error.verify_message, server, options)
    if not isinstance(error, ssl.SSLError) or any(name in _reason(error) for name in NO_TLS):
        return None
    if any(name in _reason(error) for name in REFUSALS):
        return (
            f"TLS: {server} wants a client certificate that it trusts ({_reason(error)}): "
            f"{options.certificate}"
        )
    return (
        f"TLS: {server} and this client do not agree ({_reason(error)}): see both sides' settings"
    )


def _distrust(why: str, server: str, options: TlsOptions) -> str:
    what = f"TLS: the certificate of {server}"
    if "mismatch" in why:
        return f"{what} is for another host ({why}): connect by a name in it, or {options.hostname}"
    if "expired" in why or "not yet valid" in why:
        return f"{what} is out of date ({why}): have it renewed, or set this machine's clock"
    return f"{what} is not trusted ({why}): {options.trust}"


def _reason(error: ssl.SSLError) -> str:
    return error.reason or str(error)


async def find_trouble(
    host: str, port: int, question: bytes, tls: ssl.SSLContext | None, options: TlsOptions
) -> str | None:
    """What keeps a client from being answered. None: nothing that has to do with TLS.

    Args:
        question: a request that a server of this kind answers to everybody.
        tls: the client's; None if it uses none.
    """
    server = f"{host}:{port}"
    try:
        if await answer_of(host, port, question, tls):
            return None
    except (OSError, TimeoutError) as error:
        found = tls_trouble(error, server, options)
        if found is not None:
            return found
    if tls is not None and await _answers(host, port, question, None):
        return f"{server} speaks no TLS: {options.off}"
    if tls is None and await _answers(host, port, question, trusting()):
        return f"{server} speaks TLS: {options.on}"
    return None


async def answer_of(
    host: str, port: int, question: bytes, tls: ssl.SSLContext | None, patience: float = PATIENCE
) -> bytes:
    """The first bytes of the answer; none if the server closes the connection, or asks for TLS.

    Raises:
        OSError: there is no connection, or it breaks; an `ssl.SSLError` says how TLS fails.
        TimeoutError: there is no answer.
    """
    async with asyncio.timeout(patience):
        reader, writer = await asyncio.open_connection(host, port, ssl=tls)
        try:
            writer.write(question)
            answer = await reader.read(ENOUGH)
            return b"" if answer.startswith(ALERT) else answer
        finally:
            writer.transport.abort()


async def _answers(host: str, port: int, question: bytes, tls: ssl.SSLContext | None) -> bool:
    with suppress(OSError, TimeoutError):
        try:
            return bool(await answer_of(host, port, question, tls))
        except ssl.SSLError as error:  # that it wants a certificate shows that it speaks TLS
            return not any(name in _reason(error) for name in NO_TLS)
    return False


def trusting() -> ssl.SSLContext:
    """A context that trusts any server: nothing is sent to it but a question without credentials."""
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context
