"""Sends ten orders to Kafka."""

import asyncio
import json
import os

from aiokafka import AIOKafkaProducer

KAFKA = os.environ.get("KAFKA", "127.0.0.1:9092")


async def main() -> None:
    """The topic is made by the first order."""
    async with AIOKafkaProducer(bootstrap_servers=KAFKA) as producer:
        for number in range(10):
            order = {"order": number, "customer": "ann" if number % 2 else "bob", "amount": 10}
            await producer.send_and_wait("tutorial", json.dumps(order).encode())
    print("sent 10 orders")


asyncio.run(main())
