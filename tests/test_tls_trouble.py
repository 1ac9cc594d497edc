"""What a server's answers mean, where no real one answers so whenever it is asked."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from consumer_sdk.tls_trouble import TlsOptions, find_trouble, trusting

HOST = "127.0.0.1"
OPTIONS = TlsOptions("trust", "hostname", "certificate", "on", "off")
HELLO = b"\x16"
ALERT = bytes.fromhex("15030100020246")
"""A fatal one, of the protocol's version: what OpenSSL answers to who speaks no TLS."""


@asynccontextmanager
async def server(*, answers_hello: bool) -> AsyncIterator[int]:
    """A port where whoever speaks no TLS hears an alert, and who does may hear nothing."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        is_hello = (await reader.read(1)) == HELLO
        if answers_hello or not is_hello:
            writer.write(ALERT)
        writer.close()

    listening = await asyncio.start_server(answer, HOST, 0)
    async with listening:
        yield listening.sockets[0].getsockname()[1]


async def test_tls_proxy_whose_server_restarts_is_no_trouble() -> None:
    """It closes what it cannot pass on; that it answers who speaks no TLS, by an alert, proves TLS."""
    async with server(answers_hello=False) as port:
        assert await find_trouble(HOST, port, b"srvr", trusting(), OPTIONS) is None


async def test_alert_says_that_a_server_speaks_tls() -> None:
    """It is an answer, but of TLS."""
    async with server(answers_hello=True) as port:
        found = await find_trouble(HOST, port, b"srvr", None, OPTIONS)
    assert found == f"{HOST}:{port} speaks TLS: on"
