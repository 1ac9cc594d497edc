"""A server that is not found, not reached, not trusted, or all right."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from consumer_sdk.cli.doctor.findings import Finding
from consumer_sdk.cli.doctor.servers import Server, look_at, servers_of
from consumer_sdk.errors import ConfigurationError
from consumer_sdk.testing.servers.ports import HOST, free_ports
from tests.cli.worlds import status
from tests.stores.zookeeper.test_security import certified


async def seen(server: Server) -> list[Finding]:
    """All that is found of it."""
    return [finding async for finding in look_at(server)]


@asynccontextmanager
async def listening(tls: ssl.SSLContext | None = None) -> AsyncIterator[int]:
    """A server that says nothing; its port."""

    async def close(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.close()

    async with await asyncio.start_server(close, HOST, 0, ssl=tls) as server:
        yield server.sockets[0].getsockname()[1]


@pytest.mark.parametrize(
    "url, words",
    [
        (
            "pulsar://h:6650/t?admin_url=http://h:80a0",
            "admin_url='http://h:80a0': a port is a number",
        ),
        ("kinesis://s?endpoint_url=http://h:99999", "endpoint_url='http://h:99999': a port is"),
        ("kinesis://s?endpoint_url=http://[h", "endpoint_url="),
        ("kinesis://s?endpoint_url=h:80", "begin it with http or https"),
        ("zookeeper://h:1,h:zwei/root", "'zookeeper://h:1,h:zwei/root': a port is a number"),
    ],
)
def test_malformed_server_is_a_mistake_of_the_command_line(url: str, words: str) -> None:
    """Said before anything is looked at."""
    with pytest.raises(ConfigurationError) as found:
        servers_of(url)
    assert words in str(found.value)


async def test_store_that_is_none_is_a_mistake_of_the_command_line(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """So is one with a malformed port."""
    url = "kafka://127.0.0.1:9/orders?group=g"
    for store, word in (("postgres://h/db", "postgres"), ("zookeeper://h:zwei/root", "zwei")):
        assert await status("doctor", url, store) == 2
        read = capsys.readouterr()
        assert read.out == ""
        assert word in read.err


async def test_name_that_nobody_knows_fails_first() -> None:
    """One that cannot be a name, too."""
    for host in ("no such host", "a" * 64):
        (found,) = await seen(Server(host, 1))
        assert (found.level, found.what) == ("FAIL", f"DNS {host}")
        assert "see that the name is right" in found.todo


async def test_port_where_nobody_listens_fails() -> None:
    """Its name is all right."""
    (port,) = free_ports(1)
    name, tcp = await seen(Server(HOST, port))
    assert name == Finding("ok", f"DNS {HOST}", HOST)
    assert (tcp.level, tcp.what) == ("FAIL", f"TCP {HOST}:{port}")


async def test_server_that_listens_is_all_right() -> None:
    """Without TLS nothing else is asked."""
    async with listening() as port:
        assert [each.level for each in await seen(Server(HOST, port))] == ["ok", "ok"]


async def test_certificate_is_told_with_its_end(tmp_path: Path) -> None:
    """One that nobody trusts fails; one that is for another name, and no TLS at all, do too."""
    files = certified(tmp_path, "server")
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(files["certfile"], files["keyfile"])
    async with listening(context) as port:
        trusted = Server(HOST, port, is_tls=True, ca_file=str(files["certfile"]))
        found = (await seen(trusted))[-1]
        assert found.level == "warn"
        assert "the certificate is trusted, and good for 2 days" in found.found
        found = (await seen(Server(HOST, port, is_tls=True)))[-1]
        assert (found.level, found.what) == ("FAIL", f"TLS {HOST}:{port}")
        assert "is not trusted" in found.found
        assert "SSL_CERT_FILE" in found.todo
        named = Server("localhost", port, is_tls=True, ca_file=str(files["certfile"]))
        found = (await seen(named))[-1]
        assert "is for another host" in found.found
    async with listening() as port:
        found = (await seen(Server(HOST, port, is_tls=True)))[-1]
        assert (found.level, found.todo) == ("FAIL", "ask without TLS, or name its TLS port")
