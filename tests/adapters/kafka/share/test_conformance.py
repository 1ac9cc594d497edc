"""A share group keeps the adapters' contract of a queue, on a real Kafka."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

import pytest

from consumer_sdk.testing.conformance.adapters import QueueSuite
from tests.adapters.kafka.share.harness import ShareHarness

if TYPE_CHECKING:
    from consumer_sdk.testing.servers import KafkaServer

pytestmark = pytest.mark.kafka


class TestBatchOptimized(QueueSuite):
    """Whole record batches are acquired."""

    @pytest.fixture
    async def harness(self, kafka_server: KafkaServer) -> AsyncIterator[ShareHarness]:
        """Topics and groups of this test's own."""
        async with ShareHarness(kafka_server.bootstrap_servers) as found:
            yield found


@pytest.mark.campaign
class TestRecordLimit(QueueSuite):
    """No more records are acquired than are wanted (KIP-1206)."""

    @pytest.fixture
    async def harness(self, kafka_server: KafkaServer) -> AsyncIterator[ShareHarness]:
        """Topics and groups of this test's own."""
        async with ShareHarness(
            kafka_server.bootstrap_servers, acquire_mode="record_limit"
        ) as found:
            yield found
