"""Leases in a real ZooKeeper: sessions that end, servers that die, content that is not ours."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, closing, contextmanager

import pytest
from kazoo.client import KazooClient

from consumer_sdk.abc import Leases
from consumer_sdk.errors import CheckpointFormatError, StoreError, TransientStoreError
from consumer_sdk.leases.balance import moves
from consumer_sdk.stores import ZooKeeperStore
from consumer_sdk.testing.servers import ZooKeeperEndpoint, ZooKeeperServer
from tests.leases.test_paused_members import check

pytestmark = pytest.mark.zookeeper

SESSION_TIMEOUT = 8.0
PATIENCE = 300.0


@pytest.fixture
def root() -> str:
    """A part of the tree for each test."""
    return f"/leases-{uuid.uuid4().hex}"


@asynccontextmanager
async def member(hosts: str, root: str, duration: float = 60.0) -> AsyncIterator[Leases]:
    """A member that has joined, with a session of its own."""
    store = ZooKeeperStore(hosts, root=root, session_timeout=SESSION_TIMEOUT)
    await store.open()
    try:
        leases = store.leases("g", "s", duration=duration)
        await leases.renew()
        yield leases
        await leases.aclose()
    finally:
        await store.aclose()


@contextmanager
def shell(hosts: str, **options: object) -> Iterator[KazooClient]:
    """What an operator uses."""
    client = KazooClient(hosts, **options)
    with closing(client):
        client.start()
        yield client
        client.stop()


async def until_alone(leases: Leases) -> None:
    """Waits until the others are gone."""
    async with asyncio.timeout(PATIENCE):
        while len((await leases.view()).members) > 1:
            await leases.changed(PATIENCE)


async def test_member_whose_session_expires_is_gone_at_once(
    zookeeper_server: ZooKeeperEndpoint, root: str
) -> None:
    """Long before its lease would have run out; and it comes back with what nobody took."""
    hosts = zookeeper_server.hosts
    async with member(hosts, root) as mine, member(hosts, root) as theirs:
        await mine.sync({"a": (), "b": ()})
        fences = await mine.take({"a": 0, "b": 0})
        await theirs.view()
        bridge = mine._backend._bridge()  # type: ignore[attr-defined] # its session, to end it
        with shell(hosts, client_id=bridge._client.client_id):
            pass
        await until_alone(theirs)
        view = await theirs.view()
        assert moves(view).take.keys() == {"a", "b"}
        await theirs.take({"a": fences["a"]})
        lost = await until_renewed(mine)
        assert lost == ["a"]
        assert len((await theirs.view()).members) == 2


async def until_renewed(leases: Leases) -> list[str]:
    """Renews as soon as there is a new session."""
    async with asyncio.timeout(PATIENCE):
        while True:
            try:
                return list(await leases.renew())
            except TransientStoreError:
                await asyncio.sleep(0.05)


async def test_znode_of_an_older_session_is_replaced(
    zookeeper_server: ZooKeeperEndpoint, root: str
) -> None:
    """It would go when that session expires, and its member would look dead."""
    hosts = zookeeper_server.hosts
    async with member(hosts, root) as mine, member(hosts, root) as theirs:
        with shell(hosts) as older:
            (path,) = (
                f"{root}/g/s/%members/{name}"
                for name in older.get_children(f"{root}/g/s/%members")
                if name.startswith(mine.member.partition("/")[0])
            )
            older.delete(path)
            older.create(path, b"1", ephemeral=True)
            await mine.renew()
        await mine.renew()
        assert (await theirs.view()).members == {mine.member, theirs.member}


async def test_many_members_that_start_together_share_out(
    zookeeper_server: ZooKeeperEndpoint, root: str
) -> None:
    """Eight at once on sixty partitions: they come to even shares, and every fence is unique."""

    async def work(leases: Leases, shares: dict[str, dict[str, int]]) -> None:
        await leases.sync({str(number): () for number in range(60)})
        while sorted(map(len, shares.values())) != [7] * 4 + [8] * 4:
            await leases.renew()
            view = await leases.view()
            shares[leases.member] = dict(view.held)
            todo = moves(view)
            await leases.take(todo.take)
            await leases.want(todo.want)
            await leases.release({p: view.leases[p].fence for p in todo.hand_over})
            await asyncio.sleep(0.01)

    shares: dict[str, dict[str, int]] = {}
    async with asyncio.timeout(PATIENCE), asyncio.TaskGroup() as group:

        async def one() -> None:
            async with member(zookeeper_server.hosts, root) as leases:
                await work(leases, shares)
                await asyncio.sleep(0.2)

        for _ in range(8):
            group.create_task(one())
    fences = [fence for share in shares.values() for fence in share.values()]
    assert len(fences) == len(set(fences)) == 60


@pytest.mark.campaign
async def test_leases_outlive_a_server_that_is_killed(
    own_zookeeper_server: ZooKeeperServer,
) -> None:
    """The same members go on with the same leases; nothing is lost while a lease lasts."""
    server = own_zookeeper_server
    async with member(server.hosts, "/x") as mine, member(server.hosts, "/x") as theirs:
        await mine.sync({"a": ()})
        fences = await mine.take({"a": 0})
        await theirs.view()
        await server.kill()
        with pytest.raises(TransientStoreError):
            await mine.renew()
        await server.restart()
        assert await until_renewed(mine) == []
        await until_renewed(theirs)
        view = await mine.view()
        assert view.held == fences
        assert view.members == {mine.member, theirs.member}


async def test_content_that_is_not_ours_is_left_as_it_is(
    zookeeper_server: ZooKeeperEndpoint, root: str
) -> None:
    """Every call says where and why; members that are not ours do not count."""
    hosts = zookeeper_server.hosts
    async with member(hosts, root) as mine:
        await mine.sync({"a": ()})
        with shell(hosts) as operator:
            operator.create(f"{root}/g/s/%members/%zz", b"1")
            operator.create(f"{root}/g/s/%members/odd", b"\xff")
            assert (await mine.view()).members == {mine.member, "odd"}
            for content in (b"\xff\xfe", b"", b"[]", b'{"version":2}'):
                operator.set(f"{root}/g/s/%leases", content)
                for call in (mine.sync({"b": ()}), mine.view(), mine.renew()):
                    with pytest.raises(CheckpointFormatError, match="'s' in group 'g'"):
                        await call
                assert operator.get(f"{root}/g/s/%leases")[0] == content
            operator.delete(f"{root}/g/s/%leases")
        await mine.sync({"b": ()})
        assert (await mine.view()).leases.keys() == {"b"}


async def test_more_partitions_than_a_znode_holds_are_an_error(
    zookeeper_server: ZooKeeperEndpoint, root: str
) -> None:
    """Said before the server would close the connection."""
    async with member(zookeeper_server.hosts, root) as mine:
        await mine.sync({f"{number:0100}": () for number in range(9000)})
        with pytest.raises(StoreError, match="too many partitions"):
            await mine.sync({f"{number:0100}": () for number in range(11000)})
        assert len((await mine.view()).leases) == 9000


async def test_stopped_owner_loses_its_lease_and_its_late_writes_are_refused(
    zookeeper_server: ZooKeeperEndpoint, root: str
) -> None:
    """SIGSTOP until another process has taken over, SIGCONT, 20 times; no session expires."""
    await check("zookeeper", zookeeper_server.hosts, root)
