"""A ``security_protocol`` that is not the listener's: told at once, and not tried again."""

from __future__ import annotations

import asyncio
import re
import socket
import ssl
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from aiokafka.abc import AbstractTokenProvider

from consumer_sdk.errors import AdapterError, ConfigurationError, TransientAdapterError
from consumer_sdk.testing.servers.ports import HOST
from tests.adapters.kafka.client.test_token_providers import unsigned
from tests.adapters.kafka.world import World, numbered, values
from tests.stores.zookeeper.test_security import certified

PASSWORD: dict[str, Any] = {"sasl_plain_username": "alice", "sasl_plain_password": "secret"}


@asynccontextmanager
async def with_tls(servers: str, folder: Path) -> AsyncIterator[str]:
    """The same listener behind TLS."""
    host, _, port = servers.partition(":")
    files = certified(folder, "kafka")
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(files["certfile"], files["keyfile"])

    async def copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(1 << 16):
            writer.write(data)
        writer.close()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_connection(host, int(port))
        await asyncio.gather(copy(reader, back), copy(there, writer), return_exceptions=True)

    async with await asyncio.start_server(serve, HOST, 0, ssl=context) as server:
        yield f"{HOST}:{server.sockets[0].getsockname()[1]}"


async def refusal(world: World, kind: type[Exception] = ConfigurationError, **options: Any) -> str:
    """What opening an adapter raises; it is not tried again until the time is over."""
    with pytest.raises(kind) as caught:
        await world.adapter("t", connect_timeout=100.0, **options).open(world.owner())
    assert not isinstance(caught.value, TransientAdapterError)
    return str(caught.value)


@contextmanager
def wanting_certificates(folder: Path, client: Path) -> Iterator[str]:
    """A listener that lets in whom a client's certificate names, and has nobody to let in."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=client)
    context.load_cert_chain(folder / "kafka.pem", folder / "kafka.key")
    context.verify_mode = ssl.CERT_REQUIRED

    def refuse(server: socket.socket) -> None:
        with suppress(OSError):  # the listener is closed
            while True:
                accepted, _address = server.accept()
                with accepted, suppress(OSError), context.wrap_socket(accepted, server_side=True):
                    pass  # the alert is sent with the handshake's error

    with socket.create_server((HOST, 0)) as server:
        thread = threading.Thread(target=refuse, args=[server])
        thread.start()
        try:
            yield f"{HOST}:{server.getsockname()[1]}"
        finally:
            server.shutdown(socket.SHUT_RDWR)
            thread.join()


async def test_certificates_that_do_not_fit_are_said(world: World, tmp_path: Path) -> None:
    """The listener's is not trusted, or is for another host; ours is missing, or is not trusted."""
    files, client = certified(tmp_path, "kafka"), certified(tmp_path, "client")
    trusting = ssl.create_default_context(cafile=files["certfile"])
    own = ssl.create_default_context(cafile=files["certfile"])
    own.load_cert_chain(files["certfile"], files["keyfile"])
    with wanting_certificates(tmp_path, client["certfile"]) as servers:
        for place, tls, said in (
            (servers, None, "TLS: the certificate of .* is not trusted .*load_verify_locations"),
            (servers.replace(HOST, "localhost"), trusting, "is for another host .*check_hostname"),
            (servers, trusting, "wants a client certificate .*load_cert_chain"),
            (servers, own, "wants a client certificate that it trusts"),
        ):
            world.kafka.servers = place
            options = {"security_protocol": "SSL", "ssl_context": tls}
            assert re.search(said, await refusal(world, AdapterError, **options))


@pytest.mark.kafka
async def test_token_that_is_over_is_said(world: World, sasl_servers: str) -> None:
    """The client takes the broker's challenge for a success, and then the broker hangs up."""
    world.kafka.servers = sasl_servers
    options: dict[str, Any] = {"security_protocol": "SASL_PLAINTEXT"}
    options |= {"sasl_mechanism": "OAUTHBEARER", "sasl_oauth_token_provider": Expired()}
    said = await refusal(world, AdapterError, **options)
    assert "SaslAuthenticationFailed" in said
    assert "that a token is still valid" in said


class Expired(AbstractTokenProvider):  # type: ignore[misc]  # the client has no types
    """Has one token, which was valid once."""

    async def token(self) -> str:
        return unsigned(-600)


@pytest.mark.kafka
async def test_tls_to_a_plaintext_listener_is_a_configuration_error(world: World) -> None:
    """The broker only closes the connection; the message says what the listener speaks."""
    said = await refusal(world, security_protocol="SSL")
    assert f"security_protocol='SSL', but the listener at {world.kafka.servers}" in said
    assert "speaks PLAINTEXT: give security_protocol='PLAINTEXT'" in said


@pytest.mark.kafka
async def test_plaintext_to_a_tls_listener_is_a_configuration_error(
    world: World, tmp_path: Path
) -> None:
    """Also where no certificate of the listener is trusted."""
    async with with_tls(world.kafka.servers, tmp_path) as world.kafka.servers:
        assert "speaks SSL: give security_protocol='SSL'" in await refusal(world)


@pytest.mark.kafka
async def test_password_for_a_listener_without_sasl_is_a_configuration_error(
    world: World, tmp_path: Path
) -> None:
    """Its answer is an error of the client's that names no option."""
    said = await refusal(world, security_protocol="SASL_PLAINTEXT", **PASSWORD)
    assert f"security_protocol='SASL_PLAINTEXT', but the listener at {world.kafka.servers}" in said
    assert "speaks PLAINTEXT: give security_protocol='PLAINTEXT'" in said
    trusting = ssl.create_default_context()
    trusting.check_hostname, trusting.verify_mode = False, ssl.CERT_NONE
    options = {"security_protocol": "SASL_SSL", "ssl_context": trusting, **PASSWORD}
    async with with_tls(world.kafka.servers, tmp_path) as world.kafka.servers:
        assert "speaks SSL: give security_protocol='SSL'" in await refusal(world, **options)


@pytest.mark.kafka
async def test_no_password_for_a_listener_that_asks_for_one_is_a_configuration_error(
    world: World, sasl_servers: str
) -> None:
    """With TLS around it or not."""
    world.kafka.servers = sasl_servers
    assert "speaks SASL_PLAINTEXT: give" in await refusal(world)
    said = await refusal(world, security_protocol="SASL_SSL", **PASSWORD)
    assert "speaks SASL_PLAINTEXT: give" in said


@pytest.mark.kafka
async def test_right_protocol_reads(world: World, sasl_servers: str) -> None:
    """What is asked of a listener does not disturb who fits it."""
    topic = await world.kafka.create_stream()
    await world.kafka.append(topic, numbered(0, 1))
    world.kafka.servers = sasl_servers
    options = {"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "PLAIN", **PASSWORD}
    async with world.member(topic, **options) as member:
        assert values(await member.read(1)) == [0]


async def test_server_that_closes_each_connection_may_come_back(world: World) -> None:
    """It may restart: that stays a transient error, whatever was given."""

    async def close(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.close()

    async with await asyncio.start_server(close, HOST, 0) as server:
        world.kafka.servers = f"{HOST}:{server.sockets[0].getsockname()[1]}"
        for protocol in ("PLAINTEXT", "SSL"):
            with pytest.raises(TransientAdapterError):
                adapter = world.adapter("t", security_protocol=protocol, connect_timeout=0.3)
                await adapter.open(world.owner())
