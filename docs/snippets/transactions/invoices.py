"""Writes an invoice for each order, exactly once. ``python invoices.py billing-1``: the name of this process."""

import asyncio
import json
import os
import sys

from consumer_sdk import Consumer, Message
from consumer_sdk.adapters import KafkaAdapter, KafkaTransactions

KAFKA = os.environ.get("KAFKA", "127.0.0.1:9092")


async def handle(message: Message) -> None:
    """The invoice is written in the transaction that commits the order."""
    order = json.loads(message.value or b"")
    invoice = {"order": order["order"], "total": order["amount"] * 1.2}
    message.send("invoices", json.dumps(invoice).encode(), key=message.key)


consumer = Consumer(KafkaAdapter("orders", bootstrap_servers=KAFKA, group="billing"))
transactions = KafkaTransactions(transactional_id=sys.argv[1], topics=["invoices"])
asyncio.run(consumer.run(handle, transactions=transactions))
