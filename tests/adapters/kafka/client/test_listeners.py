"""A ``security_protocol`` that is not the listener's: told at once, and not tried again."""

from __future__ import annotations

import asyncio
import re
import socket
import ssl
import struct
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from aiokafka.abc import AbstractTokenProvider
from aiokafka.errors import IllegalSaslStateError, KafkaConnectionError

from consumer_sdk.adapters.kafka.client import listeners
from consumer_sdk.adapters.kafka.client.listeners import look_at_listener, reach_first
from consumer_sdk.errors import AdapterError, ConfigurationError, TransientAdapterError
from consumer_sdk.testing import Simulation, simulate
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


# -- what a listener answers, told by a script --------------------------------------------------

PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
CLOSED = ConnectionResetError("gone")


class Listener:
    """Answers whoever speaks its protocol, and closes the connection of others.

    Args:
        speaks: its ``security_protocol``; "" for none of Kafka's.

    Attributes:
        answers: bytes that come in the place of its own.
        asked: whether TLS was spoken, and how long an answer was waited for.
    """

    def __init__(self, speaks: str, answers: bytes | None = None) -> None:
        self.speaks = speaks
        self.answers = answers
        self.distrust: ssl.SSLError | None = None
        self.asked: list[tuple[bool, float]] = []

    async def answer_of(
        self, host: str, port: int, question: bytes, tls: ssl.SSLContext | None, patience: float
    ) -> bytes:
        """In the place of a connection."""
        assert (host, port) == ("h", 9092)
        self.asked.append((tls is not None, patience))
        if not self.speaks:
            raise CLOSED
        if (tls is not None) != self.speaks.endswith("SSL"):
            return b""
        if tls is not None and tls.verify_mode != ssl.CERT_NONE and self.distrust is not None:
            raise self.distrust
        if self.answers is not None:
            return self.answers
        size, key, version, correlation = struct.unpack_from(">ihhi", question)
        assert (size, key, version) == (len(question) - 4, 17, 1)
        assert question.endswith(b"\xff\xff\0\5PLAIN")
        return struct.pack(">iih", 6, correlation, 33 if self.speaks.startswith("SASL") else 34)


async def seen(
    monkeypatch: pytest.MonkeyPatch, listener: Listener, given: str, error: Exception = CLOSED
) -> Exception | None:
    """What a look at a listener finds."""
    monkeypatch.setattr(listeners, "answer_of", listener.answer_of)
    tls = ssl.create_default_context() if given.endswith("SSL") else None
    return await look_at_listener(error, "h", 9092, given, tls=tls, patience=0.5)


@pytest.mark.parametrize("given", PROTOCOLS)
@pytest.mark.parametrize("speaks", PROTOCOLS)
async def test_listener_is_known_by_its_answers(
    monkeypatch: pytest.MonkeyPatch, speaks: str, given: str
) -> None:
    """What speaks as we do has closed the connection for another reason."""
    found = await seen(monkeypatch, Listener(speaks), given)
    if speaks == given:
        assert found is None
        return
    assert isinstance(found, ConfigurationError)
    assert str(found) == (
        f"security_protocol='{given}', but the listener at h:9092 speaks {speaks}: give "
        f"security_protocol='{speaks}', or the port of another listener"
    )


@pytest.mark.parametrize("given", PROTOCOLS)
@pytest.mark.parametrize(
    "listener",
    [
        Listener(""),
        Listener("PLAINTEXT", b""),
        Listener("PLAINTEXT", struct.pack(">ii", 6, 0x5D4B)),
        Listener("PLAINTEXT", struct.pack(">iih", 6, 7, 34)),
    ],
    ids=["closes", "says nothing", "is cut off", "is no Kafka"],
)
async def test_what_is_no_answer_says_nothing(
    monkeypatch: pytest.MonkeyPatch, listener: Listener, given: str
) -> None:
    """A server that restarts closes connections too; both ways to speak are tried."""
    listener.asked.clear()
    assert await seen(monkeypatch, listener, given) is None
    assert listener.asked[:2] == [(False, 0.5), (True, 0.5)]
    assert len(listener.asked) == 2 + given.endswith("SSL")


@pytest.mark.parametrize("given", ["SSL", "SASL_SSL"])
async def test_certificate_that_is_not_trusted_is_said(
    monkeypatch: pytest.MonkeyPatch, given: str
) -> None:
    """It is asked for with the client's own TLS; if the error has told it before, it is not asked again."""
    distrust = ssl.SSLCertVerificationError(1, "no")
    distrust.verify_message = "self-signed certificate"
    for error, questions in ((CLOSED, 3), (distrust, 2)):
        listener = Listener(given)
        listener.distrust = distrust
        found = await seen(monkeypatch, listener, given, error)
        assert isinstance(found, AdapterError)
        assert "the certificate of h:9092 is not trusted (self-signed certificate)" in str(found)
        assert len(listener.asked) == questions


@pytest.mark.parametrize(
    "error, is_asked",
    [
        (ConnectionAbortedError(), True),
        (BrokenPipeError(), True),
        (KafkaConnectionError(), True),
        (asyncio.IncompleteReadError(b"", 4), True),
        (ssl.SSLError(1, "no"), True),
        (IllegalSaslStateError(), True),
        (ConnectionRefusedError(), False),
        (TimeoutError(), False),
        (ValueError(), False),
    ],
    ids=lambda value: type(value).__name__,
)
async def test_only_a_connection_that_was_closed_is_looked_at(
    monkeypatch: pytest.MonkeyPatch, error: Exception, *, is_asked: bool
) -> None:
    """Any other error says by itself what is wrong."""
    listener = Listener("PLAINTEXT")
    found = await seen(monkeypatch, listener, "SASL_PLAINTEXT", error)
    assert bool(listener.asked) == is_asked
    assert isinstance(found, ConfigurationError) == is_asked


HOSTS = [("h", 9092, None), ("i", 9093, None)]


async def reached(failures: list[Exception | None], timeout: float = 8.0) -> list[str]:
    """The servers that are tried; None answers, and a `TimeoutError` hangs."""
    tried: list[str] = []

    async def reach(host: str, port: int) -> None:
        tried.append(f"{host}:{port}")
        failure = failures[len(tried) - 1]
        if isinstance(failure, TimeoutError):
            await asyncio.sleep(1e6)
        if failure is not None:
            raise failure

    await reach_first(HOSTS, timeout, reach, "PLAINTEXT", None)
    return tried


async def test_first_server_that_answers_is_enough() -> None:
    """The next one is tried where one is away."""
    assert await reached([None]) == ["h:9092"]
    assert await reached([ConnectionRefusedError(), None]) == ["h:9092", "i:9093"]


async def test_servers_that_cannot_be_reached_are_named() -> None:
    """With the last failure; one that is not ours is kept as the cause."""
    last = ConnectionRefusedError("not there")
    with pytest.raises(
        TransientAdapterError, match=r"servers h:9092, i:9093: .*not there"
    ) as found:
        await reached([ValueError("first"), last])
    assert found.value.__cause__ is last
    with pytest.raises(TransientAdapterError, match="there is no server"):
        await reach_first([], 8.0, lambda *_: asyncio.sleep(0), "PLAINTEXT", None)


async def test_listener_that_closed_the_connection_is_looked_at(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its protocol is said in the place of the failure."""
    monkeypatch.setattr(listeners, "answer_of", (listener := Listener("SSL")).answer_of)
    with pytest.raises(ConfigurationError, match=r"bootstrap_servers h:9092.*speaks SSL"):
        await reach_first(HOSTS[:1], 8.0, closes, "PLAINTEXT", None)
    assert listener.asked == [(False, 2.0), (True, 2.0)]  # two seconds at most
    with pytest.raises(ConfigurationError):
        await reach_first(HOSTS[:1], 1.5, closes, "PLAINTEXT", None)
    assert listener.asked[2:] == [(False, 1.5), (True, 1.5)]


async def closes(_host: str, _port: int) -> None:
    """Ends the connection."""
    raise CLOSED


def test_servers_share_the_time() -> None:
    """A silent one leaves the others theirs."""

    async def main(_simulation: Simulation) -> None:
        loop = asyncio.get_running_loop()
        began = loop.time()
        assert await reached([TimeoutError(), None]) == ["h:9092", "i:9093"]
        assert loop.time() - began == pytest.approx(4.0)

    simulate(main)
