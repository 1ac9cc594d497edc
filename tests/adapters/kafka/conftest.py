"""Topics and groups of each test's own, on the Kafka that all share."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

import pytest
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType

from tests.adapters.kafka.harness import KafkaHarness
from tests.adapters.kafka.shared_kafka import LISTENER
from tests.adapters.kafka.world import World

if TYPE_CHECKING:
    from consumer_sdk.testing.servers import KafkaServer


@pytest.fixture
async def harness(kafka_server: KafkaServer) -> AsyncIterator[KafkaHarness]:
    """Topics and groups of this test's own."""
    async with KafkaHarness(kafka_server.bootstrap_servers) as found:
        yield found


@pytest.fixture
def world(harness: KafkaHarness) -> World:
    """A group of this test's own."""
    return World(harness)


@pytest.fixture
async def sasl_servers(harness: KafkaHarness) -> str:
    """Where the shared Kafka asks for a password."""
    (found,) = await harness.admin.describe_configs(
        [ConfigResource(ConfigResourceType.BROKER, "1", {"advertised.listeners": ""})]
    )
    text = str(found.resources[0][4][0][1])
    listeners = dict(each.split("://") for each in text.split(","))
    if LISTENER not in listeners:
        pytest.skip(f"this Kafka has no listener {LISTENER!r}")
    return listeners[LISTENER]
