"""A Kafka for evictions in a second, compaction in a moment, and passwords."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import TYPE_CHECKING

import pytest

from consumer_sdk.testing.pytest_plugin import _running
from consumer_sdk.testing.servers.ports import HOST, free_ports
from tests.adapters.kafka.harness import KafkaHarness
from tests.adapters.kafka.world import World

if TYPE_CHECKING:
    from consumer_sdk.testing.servers import ExternalKafka, KafkaServer

QUICK = {
    "group.min.session.timeout.ms": 300,
    "log.cleaner.backoff.ms": 100,
    "log.retention.ms": -1,  # some cases store records of long ago
}
"""A Kafka that already runs needs these properties, too."""


@pytest.fixture(scope="session")
def sasl_port() -> int:
    """Where the shared Kafka asks for a password."""
    (port,) = free_ports(1)
    return port


@pytest.fixture(scope="session")
def kafka_server(sasl_port: int) -> Iterator[KafkaServer | ExternalKafka]:
    """The shared Kafka of these tests."""
    from consumer_sdk.testing.servers import ExternalKafka, KafkaServer, external_address

    if address := external_address("CONSUMER_SDK_KAFKA"):
        yield ExternalKafka(address)
        return
    clients, controller = free_ports(2)
    server = KafkaServer(
        port=clients, properties=QUICK | _with_sasl(clients, sasl_port, controller)
    )
    with _running(server):
        yield server


def _with_sasl(clients: int, sasl: int, controller: int) -> dict[str, object]:
    """Alice may enter with the password "secret"."""
    login = "org.apache.kafka.common.security.plain.PlainLoginModule"
    listeners = f"PLAINTEXT://{HOST}:{clients},SASL://{HOST}:{sasl}"
    return {
        "listeners": f"{listeners},CONTROLLER://{HOST}:{controller}",
        "advertised.listeners": listeners,
        "controller.quorum.bootstrap.servers": f"{HOST}:{controller}",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SASL:SASL_PLAINTEXT,"
        "CONTROLLER:PLAINTEXT",
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.sasl.plain.sasl.jaas.config": f'{login} required user_alice="secret";',
    }


@pytest.fixture
async def harness(kafka_server: KafkaServer) -> AsyncIterator[KafkaHarness]:
    """Topics and groups of this test's own."""
    async with KafkaHarness(kafka_server.bootstrap_servers) as found:
        yield found


@pytest.fixture
def world(harness: KafkaHarness) -> World:
    """A group of this test's own."""
    return World(harness)
