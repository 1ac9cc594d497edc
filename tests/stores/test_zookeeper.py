"""The ZooKeeper store on a real server: what is where, who may, and what is said."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import time
import uuid
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import pytest
from kazoo.client import KazooClient
from kazoo.security import make_acl, make_digest_acl

from consumer_sdk.abc import StoreItem
from consumer_sdk.errors import ConsumerClosedError, StoreError, TransientStoreError
from consumer_sdk.records import Assignment, OutcomeKind, Partition
from consumer_sdk.stores import ZooKeeperStore
from consumer_sdk.testing.servers import ZooKeeperEndpoint, ZooKeeperServer
from consumer_sdk.testing.servers.java import find_java
from consumer_sdk.testing.servers.ports import HOST, free_ports
from consumer_sdk.testing.servers.wire import ask
from tests.stores.zookeeper_proxy import Proxy

pytestmark = pytest.mark.zookeeper

FIRST, SECOND = Partition("orders", "0"), Partition("a/b", "é")
DURABLE, FENCED, RETRY = OutcomeKind.DURABLE, OutcomeKind.FENCED, OutcomeKind.RETRY
ALICE = {"auth_data": [("digest", "alice:secret")]}
BOB = {"auth_data": [("digest", "bob:secret")]}


@pytest.fixture
def root() -> str:
    """A place of the test's own."""
    return f"/sdk-{uuid.uuid4().hex}"


@asynccontextmanager
async def opened(hosts: str, root: str, **options: Any) -> AsyncIterator[ZooKeeperStore]:
    """An open store."""
    store = ZooKeeperStore(hosts, root=root, **options)
    await store.open()
    try:
        yield store
    finally:
        await store.aclose()


@contextmanager
def shell(hosts: str) -> Iterator[Any]:
    """What an operator has."""
    client = KazooClient(hosts)
    client.start()
    try:
        yield client
    finally:
        client.stop()
        client.close()


async def owned(store: ZooKeeperStore, *partitions: Partition) -> list[Assignment]:
    """Claims and saves."""
    grants = [Assignment(partition, 1) for partition in partitions]
    await store.claim("g", grants)
    outcomes = await store.save("g", [StoreItem(a, '{"watermark":"41"}') for a in grants])
    assert {outcome.kind for outcome in outcomes} == {DURABLE}
    return grants


async def test_person_finds_and_reads_a_checkpoint(
    zookeeper_server: ZooKeeperEndpoint, root: str
) -> None:
    """One znode for each partition, named after it, with JSON inside."""
    async with opened(zookeeper_server.hosts, root) as store:
        await owned(store, FIRST, SECOND)
        await store.pin("g", "orders", "time:1.5")
    with shell(zookeeper_server.hosts) as client:
        assert sorted(client.get_children(f"{root}/g")) == ["a%2Fb", "orders"]
        assert client.get_children(f"{root}/g/a%2Fb") == ["%C3%A9"]
        body = json.loads(client.get(f"{root}/g/orders/0")[0])
        assert body["checkpoint"] == {"watermark": "41"}
        assert body["writer"].split("/")[1] == str(os.getpid())
        assert json.loads(client.get(f"{root}/g/orders")[0])["start"] == "time:1.5"


async def test_hosts_may_carry_a_path(zookeeper_server: ZooKeeperEndpoint, root: str) -> None:
    """As with every client of ZooKeeper: ``host:port/path`` goes before the root."""
    async with opened(f"{zookeeper_server.hosts}{root}", "/inner") as store:
        await owned(store, FIRST)
        assert await store.list("g") == [FIRST]
    with shell(zookeeper_server.hosts) as client:
        assert client.exists(f"{root}/inner/g/orders/0")


async def test_server_that_is_gone_is_passed_over(
    zookeeper_server: ZooKeeperEndpoint, root: str
) -> None:
    """One of several hosts is enough."""
    async with opened(f"{HOST}:1,{zookeeper_server.hosts},no.such.host:2181", root) as store:
        await owned(store, FIRST)


async def test_session_timeout_is_the_one_that_was_given(
    own_zookeeper_server: ZooKeeperServer,
) -> None:
    """The seeds' spout had the setting, and never passed it on."""
    host, port = own_zookeeper_server.hosts.split(":")
    async with opened(own_zookeeper_server.hosts, "/sdk", session_timeout=4.0):
        assert b"to=4000" in await ask(host, int(port), b"cons")


async def test_closing_ends_the_session(own_zookeeper_server: ZooKeeperServer) -> None:
    """Nobody has to wait for it to expire."""
    host, port = own_zookeeper_server.hosts.split(":")
    async with opened(own_zookeeper_server.hosts, "/sdk", session_timeout=10.0):
        assert b"sid=" in await ask(host, int(port), b"cons")
    began = time.monotonic()
    while b"sid=" in await ask(host, int(port), b"cons"):
        assert time.monotonic() < began + 5.0, "it seems to wait for the session to expire"


# -- who may ---------------------------------------------------------------------------------


async def test_acl_keeps_others_out(zookeeper_server: ZooKeeperEndpoint, root: str) -> None:
    """default_acl and auth_data reach the servers; who is not let in is told what to do."""
    hosts, acl = zookeeper_server.hosts, [make_digest_acl("alice", "secret", all=True)]
    with shell(hosts) as client:
        client.create(root)  # which everybody may see
    async with opened(hosts, root, default_acl=acl, **ALICE) as alice:
        await owned(alice, FIRST)
        async with opened(hosts, root, **BOB) as bob:
            for call in (
                bob.claim("g", [Assignment(FIRST, 2)]),
                bob.claim("g", [Assignment(SECOND, 2)]),
                bob.peek("g", [FIRST]),
                bob.delete("g", [FIRST]),
                bob.list("g"),
                bob.pin("g", "orders", "x"),
            ):
                with pytest.raises(StoreError, match="not permitted: let this user") as caught:
                    await call
                assert not isinstance(caught.value, TransientStoreError)
        assert await alice.peek("g", [FIRST]) == {FIRST: '{"watermark":"41"}'}


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
    """No retry mends them: no TransientStoreError."""
    store = ZooKeeperStore(zookeeper_server.hosts, root=root, auth_data=[("no-such-scheme", "x")])
    with pytest.raises(StoreError, match="the servers refused our credentials") as caught:
        await store.open()
    assert not isinstance(caught.value, TransientStoreError)


async def test_credentials_that_are_mended_are_used(
    zookeeper_server: ZooKeeperEndpoint, root: str
) -> None:
    """Refused at a reconnection, kazoo gives up for good; the store does not."""
    async with (
        Proxy(zookeeper_server.hosts) as proxy,
        opened(proxy.hosts, root, session_timeout=1.0) as store,
    ):
        (owner,) = await owned(store, FIRST)
        assert store._bridge is not None
        store._bridge._client.auth_data.add(("no-such-scheme", "x"))
        proxy.cut()
        kinds = []
        for _ in range(10):
            (outcome,) = await store.save("g", [StoreItem(owner, "text")])
            kinds.append(outcome.kind)
            if outcome.kind is DURABLE:
                break
        assert kinds[-1] is DURABLE
        assert set(kinds[:-1]) == {RETRY}


def keytool(*arguments: object) -> None:
    """Makes keys and certificates, with what every Java has."""
    command = [str(find_java().parent / "keytool"), "-storepass", "secret", *map(str, arguments)]
    subprocess.run(command, check=True, capture_output=True)


async def test_tls_and_its_certificates_reach_the_servers(tmp_path: Path) -> None:
    """TLS with a name that is checked, against an authority that is given."""
    keys, ca = tmp_path / "keys.p12", tmp_path / "ca.pem"
    name = ("-dname", "CN=zk", "-ext", f"san=ip:{HOST}")
    keytool("-genkeypair", "-alias", "zk", "-keyalg", "EC", *name, "-keystore", keys)
    keytool("-exportcert", "-rfc", "-alias", "zk", "-keystore", keys, "-file", ca)
    (port,) = free_ports(1)
    properties = {
        "secureClientPort": port,
        "secureClientPortAddress": HOST,
        "serverCnxnFactory": "org.apache.zookeeper.server.NettyServerCnxnFactory",
        "ssl.keyStore.location": keys,
        "ssl.keyStore.password": "secret",
        "ssl.clientAuth": "none",
    }
    tls = {"use_ssl": True, "check_hostname": True, "ca": str(ca)}
    async with (
        ZooKeeperServer(properties=properties),
        opened(f"{HOST}:{port}", "/sdk", **tls) as store,
    ):
        await owned(store, FIRST)


# -- where it belongs -------------------------------------------------------------------------


async def test_forked_child_is_told(
    zookeeper_server: ZooKeeperEndpoint, root: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Threads do not survive a fork: a clear error, and the parent goes on."""
    async with opened(zookeeper_server.hosts, root) as store:
        with monkeypatch.context() as child:
            child.setattr(os, "getpid", lambda: 1)
            with pytest.raises(ConsumerClosedError, match="before this process was forked"):
                await store.peek("g", [FIRST])
        assert await store.peek("g", [FIRST]) == {FIRST: None}


def test_other_event_loop_is_told_and_a_dead_one_is_left_behind(
    zookeeper_server: ZooKeeperEndpoint, root: str
) -> None:
    """While its loop lives it belongs to that; afterwards it can be opened again."""
    store = ZooKeeperStore(zookeeper_server.hosts, root=root)
    with asyncio.Runner() as first:
        first.run(store.open())
        with (
            asyncio.Runner() as second,
            pytest.raises(ConsumerClosedError, match="another event loop"),
        ):
            second.run(store.peek("g", [FIRST]))
    with asyncio.Runner() as third:
        third.run(store.open())
        assert third.run(store.peek("g", [FIRST])) == {FIRST: None}
        third.run(store.aclose())


async def test_store_that_is_dropped_says_so(
    zookeeper_server: ZooKeeperEndpoint, root: str
) -> None:
    """A ResourceWarning; its session ends, and nothing is left behind."""
    stores = [ZooKeeperStore(zookeeper_server.hosts, root=root)]
    await stores[0].open()
    with pytest.warns(ResourceWarning, match=f"{root}'\\) was not closed"):
        stores.clear()
