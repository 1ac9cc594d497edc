"""Charges orders with FastStream. It runs until Ctrl-C."""

import asyncio
import os

from faststream import AckPolicy, FastStream
from faststream.kafka import KafkaBroker
from pydantic import BaseModel

KAFKA = os.environ.get("KAFKA", "127.0.0.1:9092")


class Order(BaseModel):
    """What the topic has."""

    customer: str
    amount: int


broker = KafkaBroker(KAFKA, logger=None)


@broker.subscriber(
    "from-faststream",
    group_id="from-faststream",
    auto_offset_reset="earliest",
    ack_policy=AckPolicy.NACK_ON_ERROR,
)
async def handle(order: Order) -> None:
    """An order that fails is read again, at once and without an end."""
    print(f"charged {order.customer} {order.amount}", flush=True)


asyncio.run(FastStream(broker).run())
