"""Where a consumer of a real Kafka starts: without a store, and with those that outlive a process."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from consumer_sdk.stores import LocalStore, ZooKeeperStore
from consumer_sdk.testing.servers import KafkaServer, ZooKeeperEndpoint
from tests.adapters.kafka.harness import KafkaHarness
from tests.runtime.starts.start_cases import Scene, StartCases, StoredStartCases


@pytest.fixture
async def kafka(kafka_server: KafkaServer) -> AsyncIterator[KafkaHarness]:
    """The shared Kafka, with names of this test's own."""
    async with KafkaHarness(kafka_server.bootstrap_servers) as kafka:
        yield kafka


@pytest.mark.kafka
class TestWithoutStore(StartCases):
    """The commits' metadata carries the checkpoint."""

    @pytest.fixture
    def scene(self, kafka: KafkaHarness) -> Scene:
        """Names of each case's own."""
        return Scene(kafka, None)


@pytest.mark.campaign
@pytest.mark.kafka
class TestLocalStore(StoredStartCases):
    """Handles on one file."""

    @pytest.fixture
    def scene(self, kafka: KafkaHarness, tmp_path: Path) -> Scene:
        """A file of each case's own."""
        return Scene(kafka, lambda: LocalStore(tmp_path / "state.db"))


@pytest.mark.kafka
@pytest.mark.zookeeper
class TestZooKeeperStore(StoredStartCases):
    """Sessions below one root."""

    @pytest.fixture
    def scene(self, kafka: KafkaHarness, zookeeper_server: ZooKeeperEndpoint) -> Scene:
        """A root of each case's own."""
        root = f"/starts-{uuid.uuid4().hex}"
        return Scene(kafka, lambda: ZooKeeperStore(zookeeper_server.hosts, root=root))
