"""Tokens, OAuth2, TLS and client certificates, on a real Pulsar that asks for them."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import json
import shutil
import ssl
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from consumer_sdk import Consumer
from consumer_sdk.adapters.pulsar import PulsarAdapter
from consumer_sdk.adapters.pulsar.client.access import find_refusal
from consumer_sdk.adapters.pulsar.client.admin import Admin
from consumer_sdk.adapters.pulsar.client.connection import Connection
from consumer_sdk.adapters.pulsar.ranges import PulsarRanges
from consumer_sdk.errors import AdapterError, ConfigurationError, TransientAdapterError
from consumer_sdk.testing.pytest_plugin import _running
from consumer_sdk.testing.servers import PulsarServer
from consumer_sdk.testing.servers.ports import HOST, free_ports
from consumer_sdk.testing.servers.shared import complete
from tests.adapters.pulsar.client.test_admin import site
from tests.test_security_page import program

pytestmark = [
    pytest.mark.pulsar,
    pytest.mark.skipif(shutil.which("openssl") is None, reason="makes certificates"),
]

SECRET = b"a secret that signs tokens, of thirty-two bytes or more"
AUTHENTICATION = "org.apache.pulsar.broker.authentication.AuthenticationProvider"
"""Who gives no token is ``anonymous``, who may do everything: the server looks at itself so."""

NATIVE: dict[str, Any] = {"busy_timeout": 2, "operation_timeout": 3}


def token_of(role: str, secret: bytes = SECRET) -> str:
    """A JSON web token."""

    def encoded(data: bytes) -> str:
        return base64.urlsafe_b64encode(data).rstrip(b"=").decode()

    parts = [{"alg": "HS256", "typ": "JWT"}, {"sub": role}]
    text = ".".join(encoded(json.dumps(part).encode()) for part in parts)
    return f"{text}.{encoded(hmac.digest(secret, text.encode(), hashlib.sha256))}"


def openssl(*arguments: object) -> None:
    """Runs it."""
    command = [str(shutil.which("openssl")), *map(str, arguments)]
    subprocess.run(command, check=True, capture_output=True)


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An authority in ``ca.pem``; certificates of the server and of the client ``admin``."""
    folder = tmp_path_factory.mktemp("keys")
    new = ("req", "-newkey", "rsa:2048", "-nodes", "-days", "2")
    ca = (folder / "ca.pem", folder / "ca.key")
    openssl(*new, "-x509", "-subj", "/CN=authority", "-out", ca[0], "-keyout", ca[1])
    names = folder / "names"
    names.write_text(f"subjectAltName=IP:{HOST}", encoding="utf-8")
    for name in ("server", "admin"):
        request, key = folder / f"{name}.csr", folder / f"{name}.key"
        openssl(*new, "-subj", f"/CN={name}", "-out", request, "-keyout", key)
        signing = ("x509", "-req", "-days", "2", "-CAcreateserial", "-extfile", names)
        made = folder / f"{name}.pem"
        openssl(*signing, "-in", request, "-CA", ca[0], "-CAkey", ca[1], "-out", made)
    return folder


@pytest.fixture(scope="module")
def guarded(keys: Path) -> Iterator[tuple[PulsarServer, str]]:
    """A Pulsar that checks who asks, and its address for TLS."""
    (port,) = free_ports(1)
    secret = base64.b64encode(SECRET).decode()
    server = PulsarServer(
        properties={
            "authenticationEnabled": "true",
            "authorizationEnabled": "true",
            "authenticationProviders": f"{AUTHENTICATION}Token,{AUTHENTICATION}Tls",
            "anonymousUserRole": "anonymous",
            "superUserRoles": "admin,anonymous",
            "tokenSecretKey": f"data:;base64,{secret}",
            "brokerServicePortTls": port,
            "tlsCertificateFilePath": keys / "server.pem",
            "tlsKeyFilePath": keys / "server.key",
            "tlsTrustCertsFilePath": keys / "ca.pem",
        },
    )
    with _running(server):
        complete(server.create_topic("guarded"))
        yield server, f"pulsar+ssl://{HOST}:{port}"


async def open_and_close(service_url: str, **options: Any) -> None:
    """Subscribes to the topic."""
    adapter = PulsarAdapter(
        "guarded", service_url=service_url, subscription="s", **NATIVE | options
    )
    async with Consumer(adapter):
        pass


async def refused(said: str, service_url: str, **options: Any) -> None:
    """Opening ends at once, however long it may take, with what to do."""
    patience = {"busy_timeout": 300, "operation_timeout": 300, "connect_timeout": 300.0}
    with pytest.raises(AdapterError, match=said) as caught:
        await open_and_close(service_url, **patience, **options)
    assert not isinstance(caught.value, TransientAdapterError)


async def test_token_is_checked_and_lets_its_role_in(guarded: tuple[PulsarServer, str]) -> None:
    """Who may is in; who may not, and who lies, is told what to check."""
    url = guarded[0].service_url
    await open_and_close(url, token=token_of("admin"))
    with pytest.raises(AdapterError, match="AuthorizationError: check the token"):
        await open_and_close(url, token=token_of("ann"))
    said = "refuses this client: .*: check that token="
    await refused(said, url, token=token_of("admin", b"x" * 40))
    await refused(said, url, token=lambda: token_of("admin", b"x" * 40))


async def test_token_of_a_function_is_asked_for_at_each_connection(
    guarded: tuple[PulsarServer, str],
) -> None:
    """Tokens expire; the file or service that has the next one is the function's to read."""
    asked: list[str] = []

    def fresh() -> str:
        asked.append(token_of("admin"))
        return asked[-1]

    for _ in range(2):
        await open_and_close(guarded[0].service_url, token=fresh)
    assert len(asked) >= 2


async def test_admin_token_is_checked(guarded: tuple[PulsarServer, str]) -> None:
    """It is another one than the consumer's."""
    server = guarded[0]
    options = {"admin_url": server.admin_url, "token": token_of("admin")}
    await open_and_close(server.service_url, admin_token=token_of("admin"), **options)
    with pytest.raises(AdapterError, match="give admin_token="):
        await open_and_close(server.service_url, admin_token=token_of("ann"), **options)


async def test_dead_letters_of_the_adapter_show_its_token(
    guarded: tuple[PulsarServer, str],
) -> None:
    """They are reached as the topic is."""
    server = guarded[0]
    await server.produce("guarded", [b"poison"])
    adapter = PulsarAdapter(
        "guarded", service_url=server.service_url, subscription="t", token=token_of("admin")
    )
    async with Consumer(adapter) as consumer:
        (await anext(aiter(consumer))).reject("no")
        await consumer.flush()
    assert await server.backlog("guarded-t-DLQ", "dead-letters") == 1


async def test_tls_checks_the_servers_certificate(
    guarded: tuple[PulsarServer, str], keys: Path
) -> None:
    """An authority that is not trusted is no server."""
    url = guarded[1]
    await open_and_close(url, tls_trust_certs=str(keys / "ca.pem"), token=token_of("admin"))
    trusted = {"tls_trust_certs": str(keys / "ca.pem"), "token": token_of("admin")}
    await refused("is not trusted .* give tls_trust_certs=", url, token=token_of("admin"))
    named = url.replace(HOST, "localhost")
    await refused("for another host .* tls_validate_hostname=False", named, **trusted)
    await open_and_close(named, tls_validate_hostname=False, **trusted)


async def test_scheme_that_is_not_the_ports_is_said(
    guarded: tuple[PulsarServer, str], keys: Path
) -> None:
    """TLS to a port without it, and the other way round."""
    plain, tls = guarded[0].service_url, guarded[1]
    swapped = tls.replace("pulsar+ssl", "pulsar")
    await refused(r"speaks TLS: give service_url='pulsar\+ssl:", swapped, token=token_of("admin"))
    swapped = plain.replace("pulsar", "pulsar+ssl")
    await refused("speaks no TLS: give service_url='pulsar:", swapped, token=token_of("admin"))


async def test_reader_of_ranges_says_what_the_adapter_says(
    guarded: tuple[PulsarServer, str], keys: Path
) -> None:
    """The authority, the host name, the port without TLS, the token: at once, or when its patience ends."""
    (plain, tls), trusted = (guarded[0].service_url, guarded[1]), str(keys / "ca.pem")
    token = {"token": token_of("admin")}
    named = {"service_url": tls.replace(HOST, "localhost"), "tls_trust_certs": trusted}
    troubles: list[tuple[str, dict[str, Any]]] = [
        ("is not trusted .* give tls_trust_certs=", {"service_url": tls, **token}),
        ("for another host .* tls_validate_hostname=False", {**named, **token}),
        ("speaks TLS: give service_url=", {"service_url": tls.replace("+ssl", ""), **token}),
        ("speaks no TLS: give", {"service_url": plain.replace("pulsar", "pulsar+ssl"), **token}),
        ("refuses this client: .*: check that token=", {"service_url": plain, "token": "a.b.c"}),
    ]
    for said, options in troubles:
        with pytest.raises(AdapterError, match=said) as caught:
            await open_ranges(operation_timeout=300, connect_timeout=300, **options)
        assert not isinstance(caught.value, TransientAdapterError)
    with pytest.raises(AdapterError, match=troubles[0][0]):
        await open_ranges(operation_timeout=1, connect_timeout=1, **troubles[0][1])
    await open_ranges(service_url=tls, tls_trust_certs=trusted, **token)


async def test_programs_of_the_security_page_are_let_in(
    guarded: tuple[PulsarServer, str], keys: Path
) -> None:
    """A token inside TLS; a client certificate."""
    url, ca = guarded[1], str(keys / "ca.pem")
    async with Consumer(program("pulsar_token")(url, ca, lambda: token_of("admin"))):
        pass
    mine = [str(keys / "admin.pem"), str(keys / "admin.key")]
    async with Consumer(program("pulsar_certificate")(url, ca, *mine)):
        pass


async def open_ranges(**options: Any) -> None:
    """Opens a reader of the topic's ranges, and closes it."""
    ranges = PulsarRanges("guarded", **options)
    try:
        await ranges.open()
    finally:
        await ranges.aclose()


@pytest.mark.parametrize("code, said", [(3, "refuses"), (4, "refuses"), (6, None), (22, None)])
async def test_only_a_refusal_of_who_asks_is_one(code: int, said: str | None) -> None:
    """A broker that is not ready, or has too many connections, will be, and will have fewer."""
    reason = b"no"
    error = bytes([0x08, 1, 0x10, code, 0x1A, len(reason)]) + reason
    command = bytes([0x08, 14, 0x72, len(error)]) + error
    frame = (len(command) + 4).to_bytes(4) + len(command).to_bytes(4) + command

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.write(frame)
        writer.close()

    async with await asyncio.start_server(answer, HOST, 0) as listening:
        port = listening.sockets[0].getsockname()[1]
        found = await find_refusal(Connection(service_url=f"pulsar://{HOST}:{port}"))
    assert found is None if said is None else said in str(found)


async def test_client_certificate_lets_its_role_in(
    guarded: tuple[PulsarServer, str], keys: Path
) -> None:
    """By the common name of it."""
    url, trusted = guarded[1], str(keys / "ca.pem")
    pair = {"tls_certificate": str(keys / "admin.pem"), "tls_key": str(keys / "admin.key")}
    await open_and_close(url, tls_trust_certs=trusted, **pair)
    pair = {"tls_certificate": str(keys / "server.pem"), "tls_key": str(keys / "server.key")}
    with pytest.raises(AdapterError, match="AuthorizationError"):
        await open_and_close(url, tls_trust_certs=trusted, **pair)


async def test_admin_api_is_reached_with_the_same_certificates(keys: Path) -> None:
    """A private authority, and a client certificate where the server wants one."""
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=keys / "ca.pem")
    tls.load_cert_chain(keys / "server.pem", keys / "server.key")
    tls.verify_mode = ssl.CERT_REQUIRED
    trusted = {"tls_trust_certs": str(keys / "ca.pem")}
    pair = {"tls_certificate": str(keys / "admin.pem"), "tls_key": str(keys / "admin.key")}

    async def ask(port: int, **options: Any) -> bool:
        connection = Connection(service_url="pulsar+ssl://h", **options)
        admin = Admin(f"https://{HOST}:{port}", tls=connection.ssl_context())
        try:
            return await admin.has_topic("persistent://public/default/t")
        finally:
            admin.close()

    with site(tls) as server:
        server.answer = (200, {}, b'{"partitions": 1}')
        assert await ask(server.port, **trusted, **pair)
        with pytest.raises(AdapterError, match="self-signed certificate in certificate chain"):
            await ask(server.port, **pair)
        with pytest.raises(AdapterError, match=r"_ssl\.c"):
            await ask(server.port, **trusted)


def test_file_that_is_no_certificate_is_named(keys: Path) -> None:
    """Before anything is sent."""
    connection = Connection(service_url="pulsar+ssl://h", tls_trust_certs=str(keys / "ca.key"))
    with pytest.raises(ConfigurationError, match=r"ca\.key"):
        connection.ssl_context()


@contextmanager
def issuer(answer: Callable[[str], Any]) -> Iterator[str]:
    """An OAuth2 server, with what it answers to each path."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            length = int(self.headers.get("Content-Length") or 0)
            self.rfile.read(length)
            body = json.dumps(answer(self.path)).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        do_POST = do_GET  # noqa: N815 - the base class's way to name them

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer((HOST, 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://{HOST}:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


async def test_oauth2_fetches_a_token_and_shows_it(
    guarded: tuple[PulsarServer, str], tmp_path: Path
) -> None:
    """The parameters are those of Pulsar's own client."""
    asked: list[str] = []

    def answer(path: str) -> Any:
        asked.append(path)
        if "openid" in path:
            return {"token_endpoint": f"{url}/token"}
        return {"access_token": token_of("admin"), "expires_in": 3600, "token_type": "Bearer"}

    secret = tmp_path / "client.json"
    secret.write_text(json.dumps({"client_id": "c", "client_secret": "s"}), encoding="utf-8")
    with issuer(answer) as url:
        parameters = {"issuer_url": url, "private_key": str(secret), "audience": "pulsar"}
        await asyncio.wait_for(open_and_close(guarded[0].service_url, oauth2=parameters), 300)
    assert "/.well-known/openid-configuration" in asked
    assert "/token" in asked
