"""The Pulsar adapter keeps the adapters' contract, as each type of subscription, on a real Pulsar."""

from __future__ import annotations

import pytest

from consumer_sdk.testing.conformance.adapters import (
    AdapterHarness,
    QueueSuite,
    RedeliveringLogSuite,
)
from consumer_sdk.testing.servers import PulsarServer
from tests.adapters.pulsar.harness import PulsarHarness

pytestmark = pytest.mark.pulsar


@pytest.mark.campaign
class TestExclusive(RedeliveringLogSuite):
    """A log with one consumer."""

    @pytest.fixture
    def harness(self, pulsar_server: PulsarServer) -> AdapterHarness:
        """Topics of the shared server."""
        return PulsarHarness(pulsar_server, type="exclusive")


@pytest.mark.campaign
class TestLimitedMemory(RedeliveringLogSuite):
    """The same, with queues of one message: partitions wait for one another."""

    @pytest.fixture
    def harness(self, pulsar_server: PulsarServer) -> AdapterHarness:
        """Topics of the shared server."""
        limit = {"memory_limit": 6 << 16, "max_message_size": 1 << 16}
        return PulsarHarness(pulsar_server, type="exclusive", **limit)


class TestFailover(RedeliveringLogSuite):
    """A log with an active consumer for each partition."""

    @pytest.fixture
    def harness(self, pulsar_server: PulsarServer) -> AdapterHarness:
        """Topics of the shared server."""
        return PulsarHarness(pulsar_server, type="failover")


@pytest.mark.campaign
class TestShared(QueueSuite):
    """A queue."""

    @pytest.fixture
    def harness(self, pulsar_server: PulsarServer) -> AdapterHarness:
        """Topics of the shared server."""
        return PulsarHarness(pulsar_server, type="shared")


class TestKeyShared(QueueSuite):
    """A queue that keeps keys together."""

    @pytest.fixture
    def harness(self, pulsar_server: PulsarServer) -> AdapterHarness:
        """Topics of the shared server."""
        return PulsarHarness(pulsar_server, type="key_shared")
