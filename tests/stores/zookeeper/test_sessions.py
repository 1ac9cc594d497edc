"""Members of a group on a ZooKeeper in memory: sessions that end, news that come, content that is not ours."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from kazoo.exceptions import ConnectionLoss, NoAuthError

from consumer_sdk.errors import StoreError, TransientStoreError
from consumer_sdk.stores.zookeeper.bridge import Call, UnknownResultError
from consumer_sdk.stores.zookeeper.leases import ZooKeeperLeaseBackend
from consumer_sdk.stores.zookeeper.tree import Znode
from consumer_sdk.testing.simulation import simulate
from tests.stores.fake_zookeeper import Change, FakeBridge, FakeZooKeeper, T

STREAM = "/sdk/g/s"
LEASES, MEMBERS = f"{STREAM}/%leases", f"{STREAM}/%members"


def member(bridge: FakeBridge, limit: int = 10_000) -> ZooKeeperLeaseBackend:
    """What a member of the group has of the leases."""
    return ZooKeeperLeaseBackend(lambda: bridge, STREAM, limit)  # type: ignore[arg-type,return-value] # the same seam


def owner(server: FakeZooKeeper, name: str) -> int | None:
    """The session of a member's znode."""
    return server.owners.get(f"{MEMBERS}/{name}")


# -- sessions --------------------------------------------------------------------------------


async def test_member_is_there_as_long_as_its_session() -> None:
    """Its znode says how often it has renewed; whoever is told to leave it is gone at once."""
    server = FakeZooKeeper()
    mine, theirs = FakeBridge(server), FakeBridge(server)
    ours = member(mine), member(theirs)
    await ours[0].renew("a/1", 1, {})
    await ours[1].renew("b", 7, {"a/1": 1})
    await ours[1].renew("b", 8, {})
    assert (await ours[0].read()).members == {"a/1": 1, "b": 8}
    assert (owner(server, "a%2F1"), owner(server, "b")) == (mine.session, theirs.session)
    theirs.expire()
    assert (await ours[0].read()).members == {"a/1": 1}
    await ours[0].leave("a/1")
    await ours[0].leave("a/1")
    assert (await ours[0].read()).members == {}


async def test_member_comes_back_with_a_new_session() -> None:
    """Where its znode went with the old one, and where it is still there."""
    server = FakeZooKeeper()
    bridge = FakeBridge(server)
    backend = member(bridge)
    await backend.renew("a", 1, {})
    bridge.expire()
    await backend.renew("a", 2, {})
    assert owner(server, "a") == bridge.session
    bridge.session = next(server.sessions)  # the old one has not expired yet
    await backend.renew("a", 3, {})
    assert owner(server, "a") == bridge.session
    assert (await backend.read()).members == {"a": 3}


class Restless(FakeBridge):
    """Its session is replaced between any two requests, so many times."""

    times = 0

    async def ask(self, call: Call[T], subjects: Sequence[T]) -> list[Any]:
        """Like the other one."""
        if self.times:
            self.times -= 1
            self.session = next(self.server.sessions)
        return await super().ask(call, subjects)


async def test_session_that_is_replaced_again_and_again_is_an_error_that_passes() -> None:
    """The member would look dead soon; twice is put right."""
    server = FakeZooKeeper()
    bridge = Restless(server)
    backend = member(bridge)
    await backend.renew("a", 1, {})
    bridge.times = 4
    await backend.renew("a", 2, {})
    assert owner(server, "a") == bridge.session
    bridge.times = 6
    with pytest.raises(TransientStoreError, match=r"%members/a: the session was replaced 3 times"):
        await backend.renew("a", 3, {})


async def test_client_without_a_session_does_not_know_its_member() -> None:
    """Its znode is made again, as one of an older session."""
    server = FakeZooKeeper()
    bridge = FakeBridge(server)
    backend = member(bridge)
    await backend.renew("a", 1, {})
    made = server.znodes[f"{MEMBERS}/a"]
    bridge.knows_session = False
    await backend.renew("a", 2, {})
    assert owner(server, "a") == bridge.session
    assert server.znodes[f"{MEMBERS}/a"] == Znode(b"2", made.version)


class Vanishing(FakeBridge):
    """The other session expires just before the second request."""

    asked = 0
    other: FakeBridge

    async def ask(self, call: Call[T], subjects: Sequence[T]) -> list[Any]:
        """Like the other one."""
        self.asked += 1
        if self.asked == 2:
            self.other.expire()
        return await super().ask(call, subjects)


async def test_member_that_goes_while_the_members_are_read_is_gone() -> None:
    """It was listed a moment ago."""
    server = FakeZooKeeper()
    mine, theirs = Vanishing(server), FakeBridge(server)
    mine.other = theirs
    await member(theirs).renew("b", 1, {})
    assert (await member(mine).read()).members == {}


# -- news ------------------------------------------------------------------------------------


def play(scenario: Callable[[FakeZooKeeper, FakeBridge], Any]) -> None:
    """On virtual time, with a member that is there."""

    async def main(_simulation: object) -> None:
        server = FakeZooKeeper()
        await scenario(server, FakeBridge(server))

    simulate(main)


async def waited(backend: ZooKeeperLeaseBackend, seconds: float) -> float:
    """How long."""
    time = asyncio.get_running_loop().time
    began = time()
    await backend.wait(seconds)
    return time() - began


@pytest.mark.parametrize("path", [LEASES, f"{MEMBERS}/a", f"{MEMBERS}/new"])
def test_change_is_heard_at_once(path: str) -> None:
    """Of the leases, and of who is there; until then nobody looks."""

    async def scenario(server: FakeZooKeeper, bridge: FakeBridge) -> None:
        backend = member(bridge)
        await backend.replace(0, "{}")
        await backend.renew("a", 1, {})
        await backend.read()
        assert await waited(backend, 100) == 100
        waiting = asyncio.ensure_future(waited(backend, 100))
        await asyncio.sleep(30)
        kind = "delete" if path.endswith("a") else "create" if path.endswith("new") else "set"
        server.change([Change(kind, path, b"{}")])
        assert await waiting == 30
        await backend.read()
        assert await waited(backend, 100) == 100

    play(scenario)


@pytest.mark.parametrize("has_leases", [True, False])
def test_where_nothing_is_stored_yet_somebody_looks_each_second(*, has_leases: bool) -> None:
    """ZooKeeper watches no znode that is missing."""

    async def scenario(_server: FakeZooKeeper, bridge: FakeBridge) -> None:
        backend = member(bridge)
        assert await waited(backend, 100) == 1
        if has_leases:
            await backend.replace(0, "{}")
        else:
            await backend.renew("a", 1, {})
        await backend.read()
        assert await waited(backend, 100) == 1
        assert await waited(backend, 0.25) == 0.25

    play(scenario)


async def test_client_keeps_one_watch_for_each_session() -> None:
    """However often the leases are read: kazoo would keep each one until it is called."""
    server = FakeZooKeeper()
    bridges = [FakeBridge(server), FakeBridge(server)]
    backend = ZooKeeperLeaseBackend(lambda: bridges[0], STREAM, 10_000)  # type: ignore[arg-type,return-value] # the same seam
    await backend.replace(0, "{}")
    await backend.renew("a", 1, {})
    for _ in range(3):
        await backend.read()
    assert [len(server.watches[place]) for place in (LEASES, f"{MEMBERS}/")] == [1, 1]
    del bridges[0]
    for _ in range(3):
        await backend.read()
    assert [len(server.watches[place]) for place in (LEASES, f"{MEMBERS}/")] == [2, 2]


# -- what is written and read ----------------------------------------------------------------


async def test_leases_are_written_over_the_version_that_was_read() -> None:
    """The first time there must be none; of two writers one is told that it was too late."""
    server = FakeZooKeeper()
    mine, theirs = member(FakeBridge(server)), member(FakeBridge(server))
    assert await mine.read() == (0, None, {})
    assert await mine.replace(0, "one")
    assert not await theirs.replace(0, "two")
    assert (await theirs.read())[:2] == (1, "one")
    assert await theirs.replace(1, "é")
    assert not await mine.replace(1, "three")
    assert (await mine.read())[:2] == (2, "é")
    assert server.znodes[LEASES].data == "é".encode()


async def test_leases_that_no_request_takes_are_an_error_before_they_are_sent() -> None:
    """A server would close the connection."""
    server = FakeZooKeeper()
    backend = member(FakeBridge(server), limit=2000)
    room = 2000 - 1000 - len(LEASES)
    with pytest.raises(StoreError, match=f"{LEASES}: 2001 bytes, a request takes 2000: .*too many"):
        await backend.replace(0, "x" * (room + 1))
    assert LEASES not in server.znodes
    assert await backend.replace(0, "x" * room)


async def test_content_that_is_not_ours_is_no_member() -> None:
    """A name that none of ours has is left out; a count that is none has not gone on."""
    server = FakeZooKeeper()
    backend = member(FakeBridge(server))
    await backend.renew("a", 12, {})
    server.znodes |= {
        f"{MEMBERS}/%zz": Znode(b"1", 0),
        f"{MEMBERS}/odd": Znode(b"\xff", 0),
        f"{MEMBERS}/%": Znode(b"1", 0),
        LEASES: Znode(b"\xff", 0),
    }
    assert await backend.read() == (1, "�", {"a": 12, "odd": 0})


@pytest.mark.parametrize(
    "error, kind", [(NoAuthError(), StoreError), (ConnectionLoss(), UnknownResultError)]
)
async def test_refusal_is_an_error_of_the_call(
    monkeypatch: pytest.MonkeyPatch, error: Exception, kind: type[Exception]
) -> None:
    """None of them means that a znode is missing, or that somebody else was faster."""
    server = FakeZooKeeper()
    backend = member(FakeBridge(server))
    await backend.replace(0, "{}")
    monkeypatch.setattr(server, "change", lambda _changes: [error])
    for call in (backend.replace(1, "two"), backend.renew("a", 1, {}), backend.leave("a")):
        with pytest.raises(StoreError, match=LEASES) as caught:
            await call
        assert type(caught.value) is kind
    monkeypatch.setattr(server, "handle", lambda *_, **__: error)
    with pytest.raises(StoreError, match=LEASES):
        await backend.read()
