"""A service that handles the orders of a Kafka topic, each customer's in order.

python examples/service.py --kafka 127.0.0.1:9092 --topic orders

It runs until SIGTERM or Ctrl-C, and then finishes the records in its handlers.
"""

from __future__ import annotations

import argparse
import asyncio
import json

from consumer_sdk import Consumer, Message, Ordering, Reject, RetryPolicy
from consumer_sdk.adapters import KafkaAdapter


async def handle(message: Message) -> None:
    """A return acks the order. An exception retries it, and dead-letters it at the retry limit."""
    order = json.loads(message.value or b"")
    if order["amount"] <= 0:
        raise Reject("the amount must be above 0")  # no use in trying again
    print(f"charged {order['customer']} {order['amount']}", flush=True)


async def main() -> None:
    """Reads the command line and serves."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kafka", metavar="HOST:PORT", default="127.0.0.1:9092")
    parser.add_argument("--topic", default="orders")
    options = parser.parse_args()
    consumer = Consumer(
        KafkaAdapter(options.topic, bootstrap_servers=options.kafka, group="billing"),
        retry=RetryPolicy(max_attempts=5, initial=0.1),
    )
    await consumer.run(handle, concurrency=500, ordering=Ordering.KEY)


if __name__ == "__main__":
    asyncio.run(main())
