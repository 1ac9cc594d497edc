"""Charges orders, up to 100 at once, each customer's in order. It runs until Ctrl-C."""

import asyncio
import os

from pydantic import BaseModel

from consumer_sdk import Consumer, Message
from consumer_sdk.adapters import KafkaAdapter
from consumer_sdk.decoders import pydantic_decoder

KAFKA = os.environ.get("KAFKA", "127.0.0.1:9092")


class Order(BaseModel):
    """What the topic has. A value that is none goes to the dead letters."""

    customer: str
    amount: int


async def handle(message: Message) -> None:
    """An order that fails is tried again with back-off, and then goes to the dead letters."""
    order: Order = message.body
    print(f"charged {order.customer} {order.amount}", flush=True)


adapter = KafkaAdapter("from-faststream", bootstrap_servers=KAFKA, group="from-faststream")
asyncio.run(Consumer(adapter, decode=pydantic_decoder(Order)).run(handle))
