"""Claims about the Kafka server, on the real one."""

import asyncio
import socket
import uuid

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition

from consumer_sdk.testing.servers import (
    KafkaEndpoint,
    KafkaServer,
    PortInUseError,
    ServerError,
    ServerStartError,
)
from tests.testing.servers.processes import is_gone

pytestmark = pytest.mark.kafka


async def send(server: KafkaEndpoint, topic: str, value: bytes) -> None:
    """Produce one record, acknowledged."""
    async with AIOKafkaProducer(bootstrap_servers=server.bootstrap_servers) as producer:
        await producer.send_and_wait(topic, value)


async def first_value(server: KafkaEndpoint, topic: str) -> bytes | None:
    """Return the first record of the topic's only partition."""
    consumer = AIOKafkaConsumer(
        bootstrap_servers=server.bootstrap_servers, auto_offset_reset="earliest"
    )
    async with consumer:
        consumer.assign([TopicPartition(topic, 0)])
        value: bytes | None = (await consumer.getone()).value
        return value


async def test_created_topic_has_its_partitions_and_settings(kafka_server: KafkaEndpoint) -> None:
    """A topic is usable when create_topic returns, and refused when it exists."""
    topic = f"created-{uuid.uuid4()}"
    await kafka_server.create_topic(topic, 3, cleanup_policy="compact")
    async with AIOKafkaProducer(bootstrap_servers=kafka_server.bootstrap_servers) as producer:
        assert await producer.partitions_for(topic) == {0, 1, 2}
    with pytest.raises(ServerError, match="already exists"):
        await kafka_server.create_topic(topic)


@pytest.mark.campaign
async def test_records_survive_kill_restart_and_pause(own_kafka_server: KafkaServer) -> None:
    """A restart after SIGKILL has the data, the ports and another process."""
    server = own_kafka_server
    await server.create_topic("kept")
    await send(server, "kept", b"before")
    before, address = server.pid, server.bootstrap_servers

    await server.kill()
    assert not server.is_running
    assert is_gone(before)
    await server.restart()
    assert (server.bootstrap_servers, await first_value(server, "kept")) == (address, b"before")

    server.pause()
    reading = asyncio.create_task(first_value(server, "kept"))
    assert await asyncio.wait({reading}, timeout=0.5) == (set(), {reading})
    server.resume()
    assert await reading == b"before"

    folder = server.directory
    await server.aclose()
    assert not folder.exists()
    with pytest.raises(ServerError, match="not running"):
        server.pause()


async def test_port_in_use_is_named() -> None:
    """Somebody else's port is a typed error, and no process is left."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        server = KafkaServer(port=port)
        with pytest.raises(PortInUseError, match=str(port)):
            await server.start()
        assert not server.is_running
        await server.aclose()


async def test_refused_setting_is_shown() -> None:
    """Kafka's own words about a bad setting are in the error."""
    with pytest.raises(ServerStartError, match=r"(?s)num\.partitions.*Not a number"):
        async with KafkaServer(properties={"num.partitions": "many"}):
            pass


@pytest.mark.campaign
async def test_death_at_start_shows_the_end_of_the_log() -> None:
    """What passes the format step and kills the broker is in the error too."""
    broken = KafkaServer(properties={"metric.reporters": "org.example.Absent"})
    with pytest.raises(ServerStartError, match=r"(?s)ended at its start.*org\.example\.Absent"):
        async with broken:
            pass


async def test_start_that_takes_too_long_leaves_no_process() -> None:
    """A server that is not ready in time is killed."""
    server = KafkaServer(start_timeout=0.0)
    with pytest.raises(ServerStartError, match="not ready after 0 s"):
        await server.start()
    assert not server.is_running
    await server.aclose()
