"""Charges the orders of a Pulsar topic; several processes take them in turn. It runs until Ctrl-C."""

import asyncio

from consumer_sdk import Consumer, Message, Ordering, RetryPolicy
from consumer_sdk.adapters import PulsarAdapter


async def handle(message: Message) -> None:
    """One order."""
    print("charged", message.value)


consumer = Consumer(
    PulsarAdapter(
        "orders",
        service_url="pulsar://127.0.0.1:6650",
        admin_url="http://127.0.0.1:8080",
        subscription="billing",
        type="shared",
    ),
    retry=RetryPolicy(max_attempts=5),
)
if __name__ == "__main__":
    asyncio.run(consumer.run(handle, concurrency=500, ordering=Ordering.NONE))
