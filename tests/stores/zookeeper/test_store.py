"""The ZooKeeper store on a real server: what is where, and whose it is."""

from __future__ import annotations

import asyncio
import json
import os
import time
import uuid
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import pytest
from kazoo.client import KazooClient

from consumer_sdk.abc import StoreItem
from consumer_sdk.errors import (
    CheckpointFormatError,
    CheckpointMismatchError,
    ConsumerClosedError,
)
from consumer_sdk.records import Assignment, Checkpoint, OutcomeKind, Partition
from consumer_sdk.stores import ZooKeeperStore
from consumer_sdk.testing.servers import ZooKeeperEndpoint, ZooKeeperServer
from consumer_sdk.testing.servers.ports import HOST, ask
from consumer_sdk.trackers import encode_checkpoint
from tests.stores.zookeeper_load import Load

pytestmark = pytest.mark.zookeeper

FIRST, SECOND = Partition("orders", "0"), Partition("a/b", "é")


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
    assert {outcome.kind for outcome in outcomes} == {OutcomeKind.DURABLE}
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


async def test_looking_at_a_root_that_is_missing_does_not_make_it(
    zookeeper_server: ZooKeeperEndpoint, root: str
) -> None:
    """A mistyped root or path of the hosts leaves no znode; the first write makes them."""
    hosts = zookeeper_server.hosts
    for place in (hosts, f"{hosts}{root}"):
        async with opened(place, f"{root}/sdk") as store:
            assert await store.list("g") == []
            assert await store.pins("g") == {}
            assert await store.peek("g", [FIRST]) == {FIRST: None}
            assert not (await store.leases("g", "orders").view()).members
            await store.delete("g", [FIRST])
            assert await store.unpin("g", "orders") is False
            with shell(hosts) as client:
                assert not client.exists(root)
    async with opened(hosts, f"{root}/sdk") as store:
        await owned(store, FIRST)
        assert await store.list("g") == [FIRST]


async def test_server_that_is_gone_is_passed_over(
    zookeeper_server: ZooKeeperEndpoint, root: str
) -> None:
    """One of several hosts is enough."""
    async with opened(f"{HOST}:1,{zookeeper_server.hosts},no.such.host:2181", root) as store:
        await owned(store, FIRST)


async def connections(server: ZooKeeperServer) -> bytes:
    """What the server says of them; a busy one takes longer than a question waits."""
    host, port = server.hosts.split(":")
    while not (answer := await ask(host, int(port), b"cons")):
        pass
    return answer


async def test_session_timeout_is_the_one_that_was_given(
    own_zookeeper_server: ZooKeeperServer,
) -> None:
    """The seeds' spout had the setting, and never passed it on."""
    async with opened(own_zookeeper_server.hosts, "/sdk", session_timeout=9.0):
        assert b"to=9000" in await connections(own_zookeeper_server)


async def test_closing_ends_the_session(own_zookeeper_server: ZooKeeperServer) -> None:
    """Nobody has to wait for it to expire."""
    async with opened(own_zookeeper_server.hosts, "/sdk", session_timeout=10.0):
        assert b"sid=" in await connections(own_zookeeper_server)
    began = time.monotonic()
    while b"sid=" in await connections(own_zookeeper_server):
        assert time.monotonic() < began + 9.0, "it seems to wait for the session to expire"


def no_checkpoint_of_ours(good: bytes) -> dict[str, bytes]:
    """What somebody may have put there."""
    return {
        "truncated": good[:-30],
        "another version": good.replace(b'{"version":1', b'{"version":2', 1),
        "another topic": good.replace(b'"stream":"orders"', b'"stream":"other"'),
        "another type": good.replace(b'"serial":1', b'"serial":"1"'),
        "another program's": b'{"topology":{"id":"a","name":"b"},"offset":42,"partition":0}',
        "nothing": b"",
        "a megabyte": b"x" * 1_000_000,
    }


async def test_consumer_stops_at_what_is_no_checkpoint_of_ours(
    zookeeper_server: ZooKeeperEndpoint, root: str
) -> None:
    """With a typed error, before it has handed out a record; what is there stays."""
    load = Load(zookeeper_server.hosts)
    await load.append_some()
    path = f"{root}/{load.group}/orders/0"

    text, _ = encode_checkpoint(
        Checkpoint(watermark=1, resume=2), broker="memory", partition=FIRST, encode_position=str
    )
    async with opened(zookeeper_server.hosts, root) as store:
        owner = Assignment(FIRST, 1)
        await store.claim(load.group, [owner])
        await store.save(load.group, [StoreItem(owner, text)])
    with shell(zookeeper_server.hosts) as client:
        good = client.get(path)[0]
        for name, content in no_checkpoint_of_ours(good).items():
            assert content != good, name
            client.set(path, content)
            consumer = load.consumer(ZooKeeperStore(zookeeper_server.hosts, root=root))
            with pytest.raises((CheckpointFormatError, CheckpointMismatchError)):
                await consumer.run(load.see, handle_signals=False)
            stored = client.get(path)[0]
            # A claim of what is another topic's has a stamp of its own, and the same text.
            text_of_another = content.partition(b',"checkpoint"')[2]
            assert stored == content or stored.endswith(text_of_another or b"none")
    assert not load.seen


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
