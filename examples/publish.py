"""Publish on result: a handler prices each order, and sends the price to another topic before the ack.

python examples/publish.py --kafka 127.0.0.1:9092 --topic orders --to prices

Prices are sent at least once: all replicas of its partition have a price before the order is acked. If
the process is killed between the two, the order is delivered again, and its price is sent again. So each
price names its order, and a reader recognises a second one. A customer's prices are in the order of the
customer's orders.
"""

from __future__ import annotations

import argparse
import asyncio
import json
from functools import partial

from aiokafka import AIOKafkaProducer

from consumer_sdk import Consumer, Message, Ordering, Reject, RetryPolicy
from consumer_sdk.adapters import KafkaAdapter


def price(order: dict[str, int]) -> int:
    """The price of the order, in cents."""
    if order["amount"] <= 0:
        raise Reject("the amount must be above 0")  # no use in trying again
    return order["amount"] * 250


async def handle(producer: AIOKafkaProducer, topic: str, message: Message) -> None:
    """Returns, which acks, when the broker has the price. A failed send retries the order."""
    order = json.loads(message.value or b"")
    result = {"order": f"{message.partition}/{message.position}", "cents": price(order)}
    await producer.send_and_wait(topic, json.dumps(result).encode(), key=message.key)


async def main() -> None:
    """Reads the command line and serves."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kafka", metavar="HOST:PORT", default="127.0.0.1:9092")
    parser.add_argument("--topic", default="orders")
    parser.add_argument("--to", default="prices")
    options = parser.parse_args()
    consumer = Consumer(
        KafkaAdapter(options.topic, bootstrap_servers=options.kafka, group="pricing"),
        retry=RetryPolicy(max_attempts=5, initial=0.1),
    )
    # Not enable_idempotence=True: once the broker has refused one price, too large perhaps, that
    # producer's numbers have a hole, and the broker refuses whatever comes behind it.
    async with AIOKafkaProducer(bootstrap_servers=options.kafka, acks="all") as producer:
        # It is inside of the producer's block: the drain still publishes.
        await consumer.run(
            partial(handle, producer, options.to), concurrency=500, ordering=Ordering.KEY
        )


if __name__ == "__main__":
    asyncio.run(main())
