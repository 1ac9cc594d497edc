"""Charges the orders of a Kafka topic, as a member of a group. It runs until Ctrl-C."""

import asyncio

from consumer_sdk import Consumer, Message, RetryPolicy
from consumer_sdk.adapters import KafkaAdapter


async def handle(message: Message) -> None:
    """One order."""
    print("charged", message.value)


consumer = Consumer(
    KafkaAdapter(
        "orders",
        bootstrap_servers="127.0.0.1:9092",
        group="billing",
        protocol="auto",
    ),
    retry=RetryPolicy(max_attempts=5),
)
if __name__ == "__main__":
    asyncio.run(consumer.run(handle, concurrency=500))
