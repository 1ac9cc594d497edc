"""Charges orders, up to 100 at once. It runs until Ctrl-C."""

import asyncio
import json
import os

from consumer_sdk import Consumer, Message, Ordering, RetryPolicy
from consumer_sdk.adapters import PulsarAdapter

PULSAR = os.environ.get("PULSAR", "pulsar://127.0.0.1:6650")


async def handle(message: Message) -> None:
    """An order that fails is tried again with back-off, and then goes to the dead letters."""
    order = json.loads(message.value or b"")
    print(f"charged {order['customer']} {order['amount']}", flush=True)


adapter = PulsarAdapter(
    "from-pulsar-client", service_url=PULSAR, subscription="billing", type="shared"
)
consumer = Consumer(adapter, retry=RetryPolicy(max_attempts=5))
asyncio.run(consumer.run(handle, ordering=Ordering.NONE))
