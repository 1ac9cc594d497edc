"""The Kafka adapter keeps the adapters' contract, on a real Kafka."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

import pytest

from consumer_sdk.testing.conformance.adapters import AdapterSuite
from tests.adapters.kafka.harness import KafkaHarness

if TYPE_CHECKING:
    from consumer_sdk.testing.servers import KafkaServer

pytestmark = pytest.mark.kafka


class TestKafkaAdapter(AdapterSuite):
    """Every case of the suite; the harness is the fixture of this folder."""


class TestConsumerProtocol(AdapterSuite):
    """Every case with groups whose partitions the broker assigns (KIP-848)."""

    @pytest.fixture
    async def harness(self, kafka_server: KafkaServer) -> AsyncIterator[KafkaHarness]:
        """Topics and groups of this test's own."""
        async with KafkaHarness(kafka_server.bootstrap_servers, "consumer") as found:
            yield found
