"""The ZooKeeper store on a server in memory: opening, closing and dropping it, and what its options do."""

from __future__ import annotations

import asyncio
import copy
import os
import warnings
from collections.abc import Sequence
from typing import Any

import pytest

from consumer_sdk.abc import StoreItem
from consumer_sdk.errors import ConsumerClosedError, StoreError, TransientStoreError
from consumer_sdk.records import Assignment, OutcomeKind, Partition
from consumer_sdk.stores import ZooKeeperStore
from consumer_sdk.stores.zookeeper import store as store_module
from consumer_sdk.stores.zookeeper.bridge import Call
from tests.stores.fake_zookeeper import FakeBridge, FakeZooKeeper, T

PARTITIONS = [Partition("orders", str(number)) for number in range(5)]
DURABLE, RETRY = OutcomeKind.DURABLE, OutcomeKind.RETRY
GRANTS = [Assignment(partition, 1) for partition in PARTITIONS]


class Bridge(FakeBridge):
    """Belongs to the event loop in which it was made, and counts what it is asked."""

    def __init__(self, server: FakeZooKeeper) -> None:
        super().__init__(server)
        self.made_in = asyncio.get_running_loop()
        self.asked: list[str] = []

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """Of the store that has opened it."""
        return self.made_in

    async def ask(self, call: Call[T], subjects: Sequence[T]) -> list[Any]:
        """Like the other one."""
        self.asked.append(getattr(call, "__name__", ""))
        return await super().ask(call, subjects)


class Site:
    """A server, and the bridges that stores have made to it."""

    def __init__(self) -> None:
        self.server = FakeZooKeeper()
        self.bridges: list[Bridge] = []
        self.is_down = False

    def __call__(self, _maker: object, _patience: float) -> Bridge:
        bridge = Bridge(self.server)
        bridge.is_down = self.is_down
        self.bridges.append(bridge)
        return bridge

    @property
    def ends(self) -> list[str | None]:
        """How each bridge was ended."""
        return [bridge.ended for bridge in self.bridges]


@pytest.fixture
def site(monkeypatch: pytest.MonkeyPatch) -> Site:
    """Where stores connect to."""
    made = Site()
    monkeypatch.setattr(store_module, "Bridge", made)
    return made


def make(**options: Any) -> ZooKeeperStore:
    """A store that is not open."""
    return ZooKeeperStore("fake:1", root="/sdk", **options)


async def save(store: ZooKeeperStore, text: str) -> set[OutcomeKind]:
    """All of the partitions."""
    outcomes = await store.save("g", [StoreItem(grant, text) for grant in GRANTS])
    return {outcome.kind for outcome in outcomes}


async def test_servers_that_do_not_answer_leave_the_store_closed(site: Site) -> None:
    """The session is given up; it can be opened later."""
    store = make()
    site.is_down = True
    with pytest.raises(TransientStoreError, match="no connection"):
        await store.open()
    assert site.ends == ["abandoned"]
    with pytest.raises(ConsumerClosedError, match="not open"):
        await store.list("g")
    site.is_down = False
    await store.open()
    await store.open()
    assert await store.list("g") == []
    await store.aclose()
    await store.aclose()
    assert site.ends == ["abandoned", "closed"]


def test_store_belongs_to_the_event_loop_that_has_opened_it(site: Site) -> None:
    """Until that is closed: then another one may open it, with a session of its own."""
    store = make()

    async def contend() -> None:
        await store.open()
        await store.claim("g", GRANTS)
        first, second = await asyncio.gather(save(store, "a"), save(store, "b"))
        assert first == second == {DURABLE}

    with asyncio.Runner() as first:
        first.run(contend())
        with (
            asyncio.Runner() as other,
            pytest.raises(ConsumerClosedError, match="another event loop"),
        ):
            other.run(store.open())
        assert site.ends == [None]
    with asyncio.Runner() as second:
        second.run(contend())
        assert site.ends == ["abandoned", None]
        second.run(store.aclose())
    assert site.ends == ["abandoned", "closed"]


async def test_store_that_is_dropped_says_so_and_ends_its_session(site: Site) -> None:
    """A forked child that drops its copy does neither: the session is its parent's."""
    store = make()
    await store.open()
    dropped = copy.copy(store)
    with pytest.MonkeyPatch.context() as child, warnings.catch_warnings():
        child.setattr(os, "getpid", lambda: 1)
        warnings.simplefilter("error")
        closed = copy.copy(store)
        await closed.aclose()
        del dropped
    assert site.ends == [None]
    with pytest.warns(ResourceWarning, match=r"/sdk'\) was not closed"):
        del store
    assert site.ends == ["abandoned"]


async def test_checkpoint_may_have_the_size_that_was_given(site: Site) -> None:
    """A larger one is to be tried again when it has become smaller."""
    store = make(max_size=100)
    await store.open()
    await store.claim("g", GRANTS)
    assert store.max_size == 100
    assert await save(store, "x" * 100) == {DURABLE}
    assert await save(store, "x" * 101) == {RETRY}
    (outcome, *_) = await store.save("g", [StoreItem(GRANTS[0], "x" * 101)])
    assert isinstance(outcome.error, StoreError)
    assert set((await store.peek("g", PARTITIONS)).values()) == {"x" * 100}
    await store.aclose()


async def test_saves_of_many_checkpoints_are_a_request_each(site: Site) -> None:
    """Nothing is read in between, while nobody else writes."""
    store = make(max_size=1000)
    await store.open()
    await store.claim("g", GRANTS)
    (bridge,) = site.bridges
    bridge.asked.clear()
    for text in ("one", "two", "three"):
        assert await save(store, text) == {DURABLE}
    assert bridge.asked == ["_commit"] * 3
    await store.aclose()
