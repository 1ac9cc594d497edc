"""Charges orders, up to 100 at once, each customer's in order. It runs until Ctrl-C."""

import asyncio
import json
import os

from consumer_sdk import Consumer, Message
from consumer_sdk.adapters import KafkaAdapter

KAFKA = os.environ.get("KAFKA", "127.0.0.1:9092")


async def handle(message: Message) -> None:
    """An order that fails is tried again, and then goes to a topic of dead letters."""
    order = json.loads(message.value or b"")
    await asyncio.sleep(0)  # stands for the call of the card company
    print(f"charged {order['customer']} {order['amount']}", flush=True)


adapter = KafkaAdapter("from-aiokafka", bootstrap_servers=KAFKA, group="from-aiokafka")
asyncio.run(Consumer(adapter).run(handle))
