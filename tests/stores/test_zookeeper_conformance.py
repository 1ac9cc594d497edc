"""The ZooKeeper store keeps the contract, on the real server."""

from __future__ import annotations

import uuid

import pytest

from consumer_sdk.abc import CheckpointStore
from consumer_sdk.stores import ZooKeeperStore
from consumer_sdk.testing.conformance.stores import StoreHarness, StoreSuite
from consumer_sdk.testing.servers import ZooKeeperEndpoint


class ZooKeeperHarness(StoreHarness):
    """Handles below one root."""

    def __init__(self, hosts: str) -> None:
        self._hosts = hosts
        self._root = f"/conformance-{uuid.uuid4().hex}"

    def make_store(self) -> CheckpointStore:
        """Another session."""
        return ZooKeeperStore(self._hosts, root=self._root, session_timeout=5.0)


@pytest.mark.zookeeper
class TestZooKeeperStore(StoreSuite):
    """The contract of `CheckpointStore`."""

    @pytest.fixture
    def harness(self, zookeeper_server: ZooKeeperEndpoint) -> StoreHarness:
        """A root of its own for each case."""
        return ZooKeeperHarness(zookeeper_server.hosts)
