"""docs/security.md: each of its programs is run against a server that asks for what it shows."""

from __future__ import annotations

import asyncio
import re
import runpy
import ssl
import uuid
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from consumer_sdk import Consumer
from consumer_sdk.errors import TransientStoreError
from consumer_sdk.stores import MemoryStore
from consumer_sdk.testing.servers import KafkaServer
from consumer_sdk.testing.servers.ports import HOST, free_ports
from tests.adapters.kafka.client.test_token_providers import unsigned
from tests.stores.zookeeper.test_security import certified, sasl_server, tls_server

if TYPE_CHECKING:
    from consumer_sdk.testing.servers import KinesaliteServer

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "security.md").read_text(encoding="utf-8")
RUN_IN = ("tests/test_security_page.py", "tests/adapters/pulsar/client/test_access.py")
PROGRAMS = ROOT / "docs" / "snippets" / "security" / "access.py"


@cache
def _programs() -> dict[str, Any]:
    return runpy.run_path(str(PROGRAMS))


def program(name: str) -> Callable[..., Any]:
    """A function of the page."""
    found: Callable[..., Any] = _programs()[name]
    return found


def test_each_program_of_the_page_is_run_by_a_test() -> None:
    """The page shows each function, and each function is asked for by its name."""
    functions = set(re.findall(r"^def (\w+)", PROGRAMS.read_text(encoding="utf-8"), re.MULTILINE))
    assert functions == set(re.findall(r"^:pyobject: ([a-z]\w+)$", PAGE, re.MULTILINE))
    texts = [(ROOT / path).read_text(encoding="utf-8") for path in RUN_IN]
    run = {name for text in texts for name in re.findall(r'program\("(\w+)"\)', text)}
    assert run == functions


# -- Kafka ---------------------------------------------------------------------------------------


@asynccontextmanager
async def guarded_kafka(
    server: dict[str, Path], client: dict[str, Path]
) -> AsyncIterator[tuple[str, str]]:
    """Where a Kafka asks for a password or token inside TLS, and where for a certificate."""
    plain, sasl, tls, controller = free_ports(4)
    keys = server["certfile"].with_name("both.pem")
    keys.write_text(server["keyfile"].read_text() + server["certfile"].read_text())
    modules = "org.apache.kafka.common.security"
    login = f'{modules}.plain.PlainLoginModule required user_alice="secret";'
    tokens = f"{modules}.oauthbearer.OAuthBearerLoginModule required;"
    listeners = f"PLAINTEXT://{HOST}:{plain},PASSWORDS://{HOST}:{sasl},CERTIFICATES://{HOST}:{tls}"
    protocols = "PLAINTEXT:PLAINTEXT,PASSWORDS:SASL_SSL,CERTIFICATES:SSL,CONTROLLER:PLAINTEXT"
    properties = {
        "listeners": f"{listeners},CONTROLLER://{HOST}:{controller}",
        "advertised.listeners": listeners,
        "controller.quorum.bootstrap.servers": f"{HOST}:{controller}",
        "listener.security.protocol.map": protocols,
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": keys,
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": client["certfile"],
        "listener.name.certificates.ssl.client.auth": "required",
        "sasl.enabled.mechanisms": "PLAIN,OAUTHBEARER",
        "listener.name.passwords.plain.sasl.jaas.config": login,
        "listener.name.passwords.oauthbearer.sasl.jaas.config": tokens,
    }
    async with KafkaServer(port=plain, properties=properties) as kafka:
        await kafka.create_topic("orders")
        yield f"{HOST}:{sasl}", f"{HOST}:{tls}"


async def opens(adapter: Any, store: MemoryStore | None = None) -> None:
    """A consumer of it joins its group."""
    async with asyncio.timeout(300), Consumer(adapter, store=store) as consumer:
        while not consumer.stats().partitions:
            await asyncio.sleep(0.01)


@pytest.mark.kafka
async def test_kafka_lets_in_who_shows_what_the_page_shows(tmp_path: Path) -> None:
    """A password, a token, a certificate; each inside TLS."""
    server, client = certified(tmp_path, "kafka"), certified(tmp_path, "client")
    ca, mine = str(server["certfile"]), [str(client[name]) for name in ("certfile", "keyfile")]
    async with guarded_kafka(server, client) as (passwords, certificates):
        await opens(program("kafka_password")(passwords, ca, "alice", "secret"))
        await opens(program("kafka_token")(passwords, ca, unsigned))
        await opens(program("kafka_certificate")(certificates, ca, *mine))


# -- Kinesis -------------------------------------------------------------------------------------


@asynccontextmanager
async def behind_tls(port: int, files: dict[str, Path]) -> AsyncIterator[str]:
    """The same server behind TLS, as a company's proxy."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(files["certfile"], files["keyfile"])

    async def copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(1 << 16):
            writer.write(data)
        writer.close()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_connection(HOST, port)
        await asyncio.gather(copy(reader, back), copy(there, writer), return_exceptions=True)

    async with await asyncio.start_server(serve, HOST, 0, ssl=context) as server:
        yield f"https://{HOST}:{server.sockets[0].getsockname()[1]}"


@pytest.mark.kinesis
async def test_kinesis_is_reached_with_an_authority_of_ones_own(
    kinesalite_server: KinesaliteServer, tmp_path: Path
) -> None:
    """Such as that of a proxy which looks into what leaves the company."""
    files = certified(tmp_path, "kinesis")
    stream = f"orders-{uuid.uuid4().hex[:8]}"
    await kinesalite_server.create_stream(stream)
    port = int(kinesalite_server.endpoint_url.rpartition(":")[2])
    keys = kinesalite_server.credentials
    async with behind_tls(port, files) as endpoint:
        shown = keys["aws_access_key_id"], keys["aws_secret_access_key"]
        ca = str(files["certfile"])
        adapter = program("kinesis_authority")(stream, endpoint, ca, *shown)
        await opens(adapter, MemoryStore())


# -- ZooKeeper -----------------------------------------------------------------------------------


@pytest.mark.zookeeper
async def test_zookeeper_lets_in_who_shows_what_the_page_shows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A certificate; a user and a password."""
    server, client = certified(tmp_path, "server"), certified(tmp_path, "client")
    mine = [str(client[name]) for name in ("certfile", "keyfile")]
    async with tls_server(tmp_path, server, client["certfile"]) as hosts:
        await _works(program("zookeeper_certificate")(hosts, str(server["certfile"]), *mine))
    async with sasl_server(tmp_path, monkeypatch) as guarded:
        await _works(program("zookeeper_password")(guarded.hosts, "alice", "secret"))


async def _works(store: Any) -> None:
    is_open = False
    while not is_open:  # a busy machine may take longer than the store's patience
        with suppress(TransientStoreError):
            await store.open()
            is_open = True
    try:
        assert await store.pin("g", "orders", "here") == "here"
    finally:
        await store.aclose()
