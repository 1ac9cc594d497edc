"""A Kafka with a topic and a group of each test's own."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from consumer_sdk.testing.servers import KafkaServer
from tests.adapters.kafka.harness import KafkaHarness
from tests.integration.field import Field


@pytest.fixture
async def field(kafka_server: KafkaServer) -> AsyncIterator[Field]:
    """The shared Kafka, with names of this test's own."""
    async with KafkaHarness(kafka_server.bootstrap_servers) as kafka:
        yield Field(kafka)
