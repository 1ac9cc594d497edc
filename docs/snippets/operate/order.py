"""Sends ten orders to Kafka. Order 3's card company is slow, and order 5's does not answer."""

import asyncio
import json
import os

from aiokafka import AIOKafkaProducer

KAFKA = os.environ.get("KAFKA", "127.0.0.1:9092")
COMPANIES = {3: "slow", 5: "down"}


async def main() -> None:
    """The topic is made by the first order."""
    async with AIOKafkaProducer(bootstrap_servers=KAFKA) as producer:
        for number in range(10):
            order = {"order": number, "company": COMPANIES.get(number, "good")}
            await producer.send_and_wait("operate", json.dumps(order).encode())
    print("sent 10 orders")


asyncio.run(main())
