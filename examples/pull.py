"""Pull style: a loop takes messages, or batches, at its own pace and acks them itself.

python examples/pull.py --kafka 127.0.0.1:9092 --topic orders --count 10 [--batches]
"""

from __future__ import annotations

import argparse
import asyncio

from consumer_sdk import Consumer
from consumer_sdk.adapters import KafkaAdapter


async def one_by_one(consumer: Consumer, count: int) -> None:
    """Acks each message; the comment shows the other outcomes."""
    seen = 0
    async for message in consumer:
        print(message.position, message.value, flush=True)
        message.ack()  # or .nack(delay=5.0), .reject("poison"), .ack_cumulative()
        seen += 1
        if seen >= count:
            break


async def in_batches(consumer: Consumer, count: int) -> None:
    """Acks whole batches."""
    seen = 0
    async for batch in consumer.batches(max_messages=500, max_wait=0.2):
        print(f"{len(batch)} messages", flush=True)
        batch.ack()
        seen += len(batch)
        if seen >= count:
            break


async def main() -> None:
    """Reads the command line and consumes."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kafka", metavar="HOST:PORT", default="127.0.0.1:9092")
    parser.add_argument("--topic", default="orders")
    parser.add_argument("--count", type=int, default=10, help="stop after this many messages")
    parser.add_argument("--batches", action="store_true", help="take batches")
    options = parser.parse_args()
    adapter = KafkaAdapter(options.topic, bootstrap_servers=options.kafka, group="pull")
    async with Consumer(adapter) as consumer:
        take = in_batches if options.batches else one_by_one
        await take(consumer, options.count)
        await consumer.flush()  # what was acked is durable now


if __name__ == "__main__":
    asyncio.run(main())
