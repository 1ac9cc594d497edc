"""The ZooKeeper store keeps the contract: on the real server, and on one in memory, which is there at once."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import pytest_asyncio

from consumer_sdk.abc import CheckpointStore
from consumer_sdk.errors import TransientStoreError
from consumer_sdk.stores import ZooKeeperStore
from consumer_sdk.stores.zookeeper import store as store_module
from consumer_sdk.testing.conformance.stores import StoreHarness, StoreSuite
from consumer_sdk.testing.servers import ZooKeeperEndpoint
from tests.stores.fake_zookeeper import FakeBridge, FakeZooKeeper
from tests.stores.zookeeper_proxy import Proxy


class ZooKeeperHarness(StoreHarness):
    """Handles below one root, behind a network of their own."""

    abilities = frozenset({"lose_reply", "outage"})

    def __init__(self, proxy: Proxy) -> None:
        self._proxy = proxy
        self._root = f"/conformance-{uuid.uuid4().hex}"
        self._stores: list[ZooKeeperStore] = []

    def make_store(self) -> CheckpointStore:
        """Another session."""
        store = ZooKeeperStore(self._proxy.hosts, root=self._root, session_timeout=6.0)
        self._stores.append(store)
        return store

    def lose_reply(self, store: CheckpointStore) -> None:
        """The connection breaks between the next write and its answer."""
        self._proxy.lose_next_reply()

    @asynccontextmanager
    async def outage(self, store: CheckpointStore) -> AsyncIterator[None]:
        """Nobody reaches the server; it is over when all reach it again."""
        with self._proxy.down():
            yield
        for each in self._stores:
            while each._bridge is not None and not await _reaches(each):
                await asyncio.sleep(0.05)


async def _reaches(store: ZooKeeperStore) -> bool:
    """A connection may be broken although its owner has not heard of that."""
    try:
        await store.list("nobody")
    except TransientStoreError:
        return False
    return True


@pytest.mark.zookeeper
class TestZooKeeperStore(StoreSuite):
    """The contract of `CheckpointStore`."""

    @pytest_asyncio.fixture
    async def harness(self, zookeeper_server: ZooKeeperEndpoint) -> AsyncIterator[StoreHarness]:
        """A root and a network of its own for each case."""
        async with Proxy(zookeeper_server.hosts) as proxy:
            yield ZooKeeperHarness(proxy)


class FakeHarness(StoreHarness):
    """Handles below one root, on a ZooKeeper in memory."""

    abilities = frozenset({"lose_reply", "outage"})

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        server = FakeZooKeeper()
        patch.setattr(store_module, "Bridge", lambda _maker, _patience: FakeBridge(server))

    def make_store(self) -> CheckpointStore:
        """Another session."""
        return ZooKeeperStore("fake:1", root="/conformance")

    def lose_reply(self, store: CheckpointStore) -> None:
        """The next write is applied, and its answer lost."""
        bridge_of(store).loses_reply = True

    @asynccontextmanager
    async def outage(self, store: CheckpointStore) -> AsyncIterator[None]:
        """The store does not reach the server."""
        bridge_of(store).is_down = True
        yield
        bridge_of(store).is_down = False


def bridge_of(store: CheckpointStore) -> FakeBridge:
    """What an open store asks."""
    assert isinstance(store, ZooKeeperStore)
    bridge: object = store._bridge
    assert isinstance(bridge, FakeBridge)
    return bridge


class TestZooKeeperStoreInMemory(StoreSuite):
    """The contract of `CheckpointStore`."""

    @pytest.fixture
    def harness(self, monkeypatch: pytest.MonkeyPatch) -> StoreHarness:
        """A server of its own for each case."""
        return FakeHarness(monkeypatch)
