"""The same on a real Kafka, which the fixture starts."""

import json

import pytest
from aiokafka import AIOKafkaProducer

from consumer_sdk import Consumer, Message
from consumer_sdk.adapters import KafkaAdapter
from consumer_sdk.testing.servers import KafkaServer


@pytest.mark.asyncio
async def test_order_is_read_from_kafka(kafka_server: KafkaServer) -> None:
    """Give each test a topic and a group of its own: all tests share the server."""
    servers = kafka_server.bootstrap_servers
    await kafka_server.create_topic("testing-orders")
    async with AIOKafkaProducer(bootstrap_servers=servers) as producer:
        await producer.send_and_wait("testing-orders", b'{"amount": 5}')
    amounts: list[int] = []

    async def handle(message: Message) -> None:
        amounts.append(json.loads(message.value or b"")["amount"])
        consumer.stop()

    consumer = Consumer(
        KafkaAdapter("testing-orders", bootstrap_servers=servers, group="testing-billing")
    )
    await consumer.run(handle)
    assert amounts == [5]
