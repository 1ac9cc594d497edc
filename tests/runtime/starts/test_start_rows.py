"""Where a consumer of the in-memory broker starts: without a store, and with each."""

from __future__ import annotations

import uuid
from pathlib import Path

import pytest

from consumer_sdk.stores import LocalStore, MemoryStore, ZooKeeperStore
from consumer_sdk.testing.servers import ZooKeeperEndpoint
from tests.runtime.starts.start_cases import Scene, StartCases, StoredStartCases
from tests.testing.memory.test_conformance import MemoryHarness


class TestWithoutStore(StartCases):
    """The broker's commits carry the checkpoint."""

    @pytest.fixture
    def scene(self) -> Scene:
        """A broker of its own for each case."""
        return Scene(MemoryHarness(), None)


class TestMemoryStore(StoredStartCases):
    """Handles on one store."""

    @pytest.fixture
    def scene(self) -> Scene:
        """A broker and a store of its own for each case."""
        return Scene(MemoryHarness(), MemoryStore().handle)


class TestLocalStore(StoredStartCases):
    """Handles on one file."""

    @pytest.fixture
    def scene(self, tmp_path: Path) -> Scene:
        """A broker and a file of its own for each case."""
        return Scene(MemoryHarness(), lambda: LocalStore(tmp_path / "state.db"))


@pytest.mark.zookeeper
class TestZooKeeperStore(StoredStartCases):
    """Sessions below one root."""

    @pytest.fixture
    def scene(self, zookeeper_server: ZooKeeperEndpoint) -> Scene:
        """A broker and a root of its own for each case."""
        root = f"/starts-{uuid.uuid4().hex}"
        return Scene(MemoryHarness(), lambda: ZooKeeperStore(zookeeper_server.hosts, root=root))
