"""Charges the orders of a Kafka topic, each customer's in order. It runs until Ctrl-C or SIGTERM."""

import asyncio
import json
import os

from consumer_sdk import Consumer, Message, Ordering, Reject, RetryPolicy

KAFKA = os.environ.get("KAFKA", "127.0.0.1:9092")


async def handle(message: Message) -> None:
    """A return acks the order. An exception retries it, and dead-letters it at the limit."""
    order = json.loads(message.value or b"")
    if order["amount"] <= 0:
        raise Reject("the amount must be above 0")  # to the dead letters, at once
    print(f"charged {order['customer']} {order['amount']}", flush=True)


consumer = Consumer(f"kafka://{KAFKA}/orders?group=billing", retry=RetryPolicy(max_attempts=5))
asyncio.run(consumer.run(handle, concurrency=500, ordering=Ordering.KEY))
