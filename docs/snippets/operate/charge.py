"""Charges the orders of Kafka. ``python charge.py fixed``: every card company answers."""

import asyncio
import json
import os
import sys

from consumer_sdk import Consumer, Message, RetryPolicy
from consumer_sdk.adapters import KafkaAdapter

KAFKA = os.environ.get("KAFKA", "127.0.0.1:9092")
FIXED = "fixed" in sys.argv


async def handle(message: Message) -> None:
    """Up to 100 of these run at once."""
    order = json.loads(message.value or b"")
    if not FIXED and order["company"] == "slow":
        await asyncio.sleep(3600)
    if not FIXED and order["company"] == "down":
        raise TimeoutError("the card company did not answer")
    print(f"charged order {order['order']}", flush=True)


consumer = Consumer(
    KafkaAdapter("operate", bootstrap_servers=KAFKA, group="billing"),
    retry=RetryPolicy(max_attempts=2, initial=0.1),
    drain_timeout=1,
)
asyncio.run(consumer.run(handle))
