"""Who may use the ZooKeeper store, on real servers: ACLs, SASL, TLS, and what is said."""

from __future__ import annotations

import asyncio
import gc
import logging
import re
import shutil
import subprocess
import threading
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from kazoo.security import CREATOR_ALL_ACL, make_acl, make_digest_acl

from consumer_sdk.abc import StoreItem
from consumer_sdk.errors import StoreError, TransientStoreError
from consumer_sdk.records import Assignment, OutcomeKind, Partition
from consumer_sdk.stores import ZooKeeperStore
from consumer_sdk.testing.servers import ZooKeeperEndpoint, ZooKeeperServer
from consumer_sdk.testing.servers.ports import HOST, free_ports
from tests.stores.zookeeper.test_store import opened, owned, shell
from tests.stores.zookeeper_proxy import Proxy

pytestmark = pytest.mark.zookeeper

FIRST, SECOND = Partition("orders", "0"), Partition("a/b", "é")
DURABLE, RETRY = OutcomeKind.DURABLE, OutcomeKind.RETRY
TEXT = '{"watermark":"41"}'
ALICE = {"auth_data": [("digest", "alice:secret")]}
BOB = {"auth_data": [("digest", "bob:secret")]}


@pytest.fixture
def root() -> str:
    """A place of the test's own."""
    return f"/sdk-{uuid.uuid4().hex}"


async def kept_out(store: ZooKeeperStore) -> None:
    """Every call says that it is not permitted, and that no retry helps."""
    for call in (
        store.claim("g", [Assignment(FIRST, 2)]),
        store.claim("g", [Assignment(SECOND, 2)]),
        store.peek("g", [FIRST]),
        store.delete("g", [FIRST]),
        store.list("g"),
        store.pin("g", "orders", "x"),
    ):
        with pytest.raises(StoreError, match="not permitted: let this user") as caught:
            await call
        assert not isinstance(caught.value, TransientStoreError)


async def until_durable(store: ZooKeeperStore, owner: Assignment, tries: int = 10) -> None:
    """Saves again while the answer is RETRY, and nothing else, as the runtime does."""
    for _ in range(tries):
        (outcome,) = await store.save("g", [StoreItem(owner, "text")])
        if outcome.kind is DURABLE:
            return
        assert outcome.kind is RETRY
    raise AssertionError(outcome)


# -- access rights ----------------------------------------------------------------------------


async def test_acl_keeps_others_out(zookeeper_server: ZooKeeperEndpoint, root: str) -> None:
    """default_acl and auth_data reach the servers; who is not let in is told what to do."""
    hosts, acl = zookeeper_server.hosts, [make_digest_acl("alice", "secret", all=True)]
    with shell(hosts) as client:
        client.create(root)  # which everybody may see
    async with opened(hosts, root, default_acl=acl, **ALICE) as alice:
        await owned(alice, FIRST)
        async with opened(hosts, root, **BOB) as bob:
            await kept_out(bob)
        assert await alice.peek("g", [FIRST]) == {FIRST: TEXT}


async def test_credentials_are_not_in_kazoos_own_log(
    zookeeper_server: ZooKeeperEndpoint, root: str, caplog: pytest.LogCaptureFixture
) -> None:
    """At DEBUG it prints each request; the login shows that it was one."""
    with caplog.at_level(logging.DEBUG, "kazoo"):
        async with opened(zookeeper_server.hosts, root, **ALICE) as alice:
            await owned(alice, FIRST)
    assert "Sending request(xid=-4): <Auth: hidden>" in caplog.text
    assert "secret" not in caplog.text


async def test_lost_right_to_one_partition_does_not_hold_up_the_others(
    zookeeper_server: ZooKeeperEndpoint, root: str
) -> None:
    """A znode that may not be written any more is RETRY alone, and says why."""
    async with opened(zookeeper_server.hosts, root) as store:
        grants = await owned(store, FIRST, SECOND)
        with shell(zookeeper_server.hosts) as client:
            client.set_acls(f"{root}/g/orders/0", [make_acl("world", "anyone", read=True)])
        lost, kept = await store.save("g", [StoreItem(a, "text") for a in grants])
        assert (lost.kind, kept.kind) == (RETRY, DURABLE)
        assert f"{root}/g/orders/0" in str(lost.error)


async def test_refused_credentials_are_said(zookeeper_server: ZooKeeperEndpoint, root: str) -> None:
    """No retry helps: no TransientStoreError."""
    store = ZooKeeperStore(zookeeper_server.hosts, root=root, auth_data=[("no-such-scheme", "x")])
    with pytest.raises(StoreError, match="the servers refused our credentials") as caught:
        await store.open()
    assert not isinstance(caught.value, TransientStoreError)


async def test_credentials_that_are_mended_are_used(
    zookeeper_server: ZooKeeperEndpoint, root: str
) -> None:
    """Refused at a reconnection, kazoo gives up for good; the store does not.

    Nor is it said to be for good: a server that goes down in the middle of a login looks alike.
    """
    async with (
        Proxy(zookeeper_server.hosts) as proxy,
        opened(proxy.hosts, root, session_timeout=4.0) as store,
    ):
        (owner,) = await owned(store, FIRST)
        assert store._bridge is not None
        store._bridge._client.auth_data.add(("no-such-scheme", "x"))
        proxy.cut()
        for epoch in range(10):
            with suppress(TransientStoreError):
                await store.claim("g", [Assignment(SECOND, epoch)])
        await until_durable(store, owner)


async def until_kazoo_is_gone(caplog: pytest.LogCaptureFixture) -> None:
    """What its threads and their log leave behind belongs to the test that made them."""
    names = ("(zk_loop)", "(_thread_worker)", "consumer_sdk.stores.zookeeper.store")
    while any(thread.name.endswith(names) for thread in threading.enumerate()):
        await asyncio.sleep(0.01)
    caplog.clear()
    gc.collect()


# -- SASL ------------------------------------------------------------------------------------

JAAS = """Server {
    org.apache.zookeeper.server.auth.DigestLoginModule required
    user_alice="secret" user_bob="hidden";
};
"""


def password(user: str, secret: str) -> dict[str, Any]:
    """The store's options for DIGEST-MD5."""
    return {"sasl_options": {"mechanism": "DIGEST-MD5", "username": user, "password": secret}}


@asynccontextmanager
async def sasl_server(
    folder: Path, monkeypatch: pytest.MonkeyPatch, **properties: object
) -> AsyncIterator[ZooKeeperServer]:
    """A server that knows Alice and Bob, from a JAAS file."""
    jaas = folder / "jaas.conf"
    jaas.write_text(JAAS)
    monkeypatch.setenv("JAVA_TOOL_OPTIONS", f"-Djava.security.auth.login.config={jaas}")
    provider = "org.apache.zookeeper.server.auth.SASLAuthenticationProvider"
    async with ZooKeeperServer(properties={"authProvider.1": provider, **properties}) as server:
        yield server


async def test_sasl_user_owns_what_it_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """DIGEST-MD5: with an ACL for its creator Bob and the nameless are kept out, Alice is not."""
    async with (
        sasl_server(tmp_path, monkeypatch) as server,
        opened(
            server.hosts, "/sdk", default_acl=CREATOR_ALL_ACL, **password("alice", "secret")
        ) as alice,
    ):
        await owned(alice, FIRST)
        assert await alice.peek("g", [FIRST]) == {FIRST: TEXT}
        for other in (password("bob", "hidden"), {}):
            store = ZooKeeperStore(server.hosts, root="/sdk", **other)
            with pytest.raises(StoreError, match="not permitted"):
                await store.open()


@pytest.mark.campaign
async def test_sasl_sessions_are_made_anew_after_a_kill(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each connection logs in: one that the server dropped goes on as the same user."""
    async with (
        sasl_server(tmp_path, monkeypatch) as server,
        opened(
            server.hosts,
            "/sdk",
            session_timeout=2.0,
            default_acl=CREATOR_ALL_ACL,
            **password("alice", "secret"),
        ) as alice,
    ):
        (owner,) = await owned(alice, FIRST)
        await server.kill()
        await server.start()
        await until_durable(alice, owner)
        assert await alice.peek("g", [FIRST]) == {FIRST: "text"}


@pytest.mark.campaign
async def test_wrong_password_is_said_at_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No retry helps: no TransientStoreError."""
    async with sasl_server(tmp_path, monkeypatch) as server:
        store = ZooKeeperStore(server.hosts, root="/sdk", **password("alice", "wrong"))
        with pytest.raises(StoreError, match="the servers refused our credentials") as caught:
            await store.open()
        assert not isinstance(caught.value, TransientStoreError)


# kazoo's own thread ends by the error with which the server refuses the password.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
async def test_server_that_wants_sasl_refuses_others_with_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A wrong password and none at all: at open, with the option that is to be looked at."""
    required = {"sessionRequireClientSASLAuth": "true"}
    async with sasl_server(tmp_path, monkeypatch, **required) as server:
        async with opened(server.hosts, "/sdk", **password("alice", "secret")) as alice:
            await owned(alice, FIRST)
        for options in (password("alice", "wrong"), {}):
            store = ZooKeeperStore(server.hosts, root="/sdk", session_timeout=3.0, **options)
            with pytest.raises(StoreError, match="sasl_options="):
                await store.open()
    await until_kazoo_is_gone(caplog)


# -- TLS -------------------------------------------------------------------------------------


def certified(folder: Path, name: str) -> dict[str, Path]:
    """A key and a certificate that it has signed itself, both as Python reads them."""
    openssl = shutil.which("openssl")
    if openssl is None:
        pytest.skip("needs the program openssl, which makes certificates")
    files = {"keyfile": folder / f"{name}.key", "certfile": folder / f"{name}.pem"}
    curve = "-newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes"
    subject = f"-subj /CN={name} -addext subjectAltName=IP:{HOST}"
    command = f"{openssl} req -x509 {curve} {subject} -days 2".split()
    subprocess.run(
        [*command, "-keyout", files["keyfile"], "-out", files["certfile"]],
        check=True,
        capture_output=True,
    )
    return files


@asynccontextmanager
async def tls_server(folder: Path, server: dict[str, Path], client: Path) -> AsyncIterator[str]:
    """A server that lets in who has the client's certificate; its ``host:port``."""
    keys = folder / "both.pem"
    keys.write_text("".join(path.read_text() for path in server.values()))
    (port,) = free_ports(1)
    properties = {
        "secureClientPort": port,
        "secureClientPortAddress": HOST,
        "serverCnxnFactory": "org.apache.zookeeper.server.NettyServerCnxnFactory",
        "ssl.keyStore.location": keys,
        "ssl.keyStore.type": "PEM",
        "ssl.trustStore.location": client,
        "ssl.trustStore.type": "PEM",
        "ssl.clientAuth": "need",
    }
    async with ZooKeeperServer(properties=properties):
        yield f"{HOST}:{port}"


drops_sockets = pytest.mark.filterwarnings(
    "ignore:.*SSLSocket:pytest.PytestUnraisableExceptionWarning"
)
"""kazoo lets go of a socket whose handshake failed without closing it."""


async def refusal_of(hosts: str, **options: Any) -> str:
    """What opening a store says where no retry helps; long before its patience is over."""
    store = ZooKeeperStore(hosts, session_timeout=300.0, **options)
    with pytest.raises(StoreError) as caught:
        await store.open()
    assert not isinstance(caught.value, TransientStoreError)
    return str(caught.value)


@drops_sockets
async def test_tls_to_a_port_without_it_is_said(
    zookeeper_server: ZooKeeperEndpoint, caplog: pytest.LogCaptureFixture
) -> None:
    """The server closes the connection without a word."""
    said = await refusal_of(zookeeper_server.hosts, use_ssl=True)
    assert f"{zookeeper_server.hosts} speaks no TLS: leave out use_ssl=" in said
    await until_kazoo_is_gone(caplog)


@drops_sockets
async def test_tls_checks_the_certificates_of_both_sides(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The server's name is checked against an authority; it lets in who shows a certificate.

    Who has none, trusts another server, or is called otherwise is told so at once, and what to do.
    """
    server, client = certified(tmp_path, "server"), certified(tmp_path, "client")
    tls: dict[str, Any] = {"use_ssl": True, "ca": str(server["certfile"])}
    mine: dict[str, Any] = {name: str(path) for name, path in client.items()}
    async with tls_server(tmp_path, server, client["certfile"]) as hosts:
        async with opened(hosts, "/sdk", **tls, **mine) as store:
            await owned(store, FIRST)
        renamed = hosts.replace(HOST, "localhost")
        async with opened(renamed, "/sdk", verify_hostname=False, **tls, **mine) as store:
            assert await store.peek("g", [FIRST]) == {FIRST: TEXT}
        for place, options, said in (
            (hosts, tls, "wants a client certificate .* give certfile= and keyfile="),
            (hosts, {**tls, **mine, "ca": mine["certfile"]}, "is not trusted .* give ca= the file"),
            (renamed, {**tls, **mine}, "is for another host .* or give verify_hostname=False"),
            (hosts, {}, "speaks TLS: give use_ssl=True"),
        ):
            assert re.search(said, await refusal_of(place, **options))
    await until_kazoo_is_gone(caplog)
