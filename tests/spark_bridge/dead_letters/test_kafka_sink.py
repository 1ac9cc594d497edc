"""The sink, on a real Spark and a real Kafka."""

from __future__ import annotations

import asyncio
import uuid
from typing import TYPE_CHECKING, Any

import pytest
from aiokafka import AIOKafkaConsumer
from pyspark.errors import PySparkException

from consumer_sdk.dead_letters import KafkaDeadLetters
from consumer_sdk.spark_bridge.dead_letters.sink import write_dead_letters
from consumer_sdk.testing.servers.ports import HOST, free_ports
from tests.spark_bridge.dead_letters.given import letter, rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from consumer_sdk.testing.servers import KafkaServer

pytestmark = [
    pytest.mark.spark,
    pytest.mark.kafka,
    # The first query starts Spark's machinery, which takes a minute where others work too.
]


@pytest.fixture
def topic() -> str:
    """The name of a topic of this test's own."""
    return f"rejects-{uuid.uuid4().hex[:8]}"


async def read_all(servers: str, topic: str, count: int) -> list[Any]:
    """So many records of a topic, by their position in the origin."""
    consumer = AIOKafkaConsumer(topic, bootstrap_servers=servers, auto_offset_reset="earliest")
    await consumer.start()
    try:
        found = [await consumer.getone() for _ in range(count)]
    finally:
        await consumer.stop()
    return sorted(found, key=lambda each: int(dict(each.headers)["dlq.position"]))


def shape(record: Any) -> tuple[Any, ...]:
    """A letter's record without what differs from one writing to the next."""
    headers = [each for each in record.headers if each[0] != "dlq.failed-at"]
    return record.key, record.value, record.partition, headers


async def written_by_a_consumer(servers: str, topic: str, numbers: range) -> None:
    """The same letters, as the runtime writes them."""
    letters = KafkaDeadLetters(topic, bootstrap_servers=servers)
    await letters.open()
    await letters.send([letter(at) for at in numbers])
    await letters.aclose()


def test_rows_become_the_letters_that_a_consumer_writes(
    spark: SparkSession, kafka_server: KafkaServer, topic: str
) -> None:
    """Key, value, headers, partition and reasons are the same, so the same tools read them."""
    servers, twin = kafka_server.bootstrap_servers, f"{topic}-twin"
    write_dead_letters(rows(spark, range(20)), f"kafka://{servers}/{topic}", group="etl")
    asyncio.run(written_by_a_consumer(servers, twin, range(20)))
    found = asyncio.run(read_all(servers, topic, 20))
    expected = asyncio.run(read_all(servers, twin, 20))
    assert [shape(each) for each in found] == [shape(each) for each in expected]


def test_without_a_topic_each_stream_has_its_own(
    spark: SparkSession, kafka_server: KafkaServer, topic: str
) -> None:
    """The name is the consumer's default, ``<topic>-<group>-DLQ``."""
    servers = kafka_server.bootstrap_servers
    write_dead_letters(rows(spark, range(3), topic=topic), f"kafka://{servers}", group="etl")
    found = asyncio.run(read_all(servers, f"{topic}-etl-DLQ", 3))
    assert [each.value for each in found] == [letter(at).value for at in range(3)]


def test_a_broker_that_is_away_fails_the_task_with_a_typed_error(spark: SparkSession) -> None:
    """The text names the destination and shows none of its options (Spark trap 22)."""
    (port,) = free_ports(1)
    url = f"kafka://{HOST}:{port}/dlq?connect_timeout=0.5&client_id=hidden"
    with pytest.raises(PySparkException, match=f"DeadLetterError.*kafka://{HOST}:{port}/dlq") as e:
        write_dead_letters(rows(spark, range(1)), url, patience=0.0)
    assert "hidden" not in str(e.value)
