"""Charges the orders of Kafka, and serves a page about itself. ``python service.py 3``: order 3 hangs."""

import asyncio
import json
import os
import sys

from consumer_sdk import Consumer, Message, admin
from consumer_sdk.adapters import KafkaAdapter

KAFKA = os.environ.get("KAFKA", "127.0.0.1:9092")
PAGE = os.environ.get("PAGE", "127.0.0.1:9464")
HANGING = {int(number) for number in sys.argv[1:]}


async def handle(message: Message) -> None:
    """Up to 100 of these run at once."""
    order = json.loads(message.value or b"")
    if order["order"] in HANGING:
        await asyncio.sleep(3600)  # the card company does not answer
    print(f"charged order {order['order']}", flush=True)


async def main() -> None:
    """Until Ctrl-C."""
    consumer = Consumer(KafkaAdapter("tutorial", bootstrap_servers=KAFKA, group="tutorial"))
    async with admin.serve(consumer, address=PAGE):
        await consumer.run(handle)


asyncio.run(main())
