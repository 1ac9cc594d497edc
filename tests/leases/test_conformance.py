"""The leases of every store keep the contract."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from consumer_sdk.testing.conformance.leases import LeaseSuite, StoreHarness
from consumer_sdk.testing.servers import ZooKeeperEndpoint
from tests.stores.sqlite.test_conformance import LocalHarness
from tests.stores.zookeeper.test_conformance import FakeHarness, ZooKeeperHarness
from tests.stores.zookeeper_proxy import Proxy
from tests.testing.memory.test_store import MemoryHarness


class TestMemoryLeases(LeaseSuite):
    """The contract of `Leases`, in memory."""

    @pytest.fixture
    def harness(self) -> StoreHarness:
        """A memory of its own for each case."""
        return MemoryHarness()


class TestLocalLeases(LeaseSuite):
    """The contract of `Leases`, in a file."""

    @pytest.fixture
    def harness(self, tmp_path: Path) -> StoreHarness:
        """A file of its own for each case."""
        return LocalHarness(tmp_path / "state.db")


class TestZooKeeperLeasesInMemory(LeaseSuite):
    """The contract of `Leases`, on a ZooKeeper in memory."""

    @pytest.fixture
    def harness(self, monkeypatch: pytest.MonkeyPatch) -> StoreHarness:
        """A server of its own for each case."""
        return FakeHarness(monkeypatch)


@pytest.mark.zookeeper
class TestZooKeeperLeases(LeaseSuite):
    """The contract of `Leases`, on the real server."""

    @pytest_asyncio.fixture
    async def harness(self, zookeeper_server: ZooKeeperEndpoint) -> AsyncIterator[StoreHarness]:
        """A root and a network of its own for each case."""
        async with Proxy(zookeeper_server.hosts) as proxy:
            yield ZooKeeperHarness(proxy)
