"""The consumer: checks flights and feeds the good ones to Spark, each aircraft's in order.

python -m examples.flights.consume --kafka 127.0.0.1:9092 --topic flights --folder DIR
"""

from __future__ import annotations

import argparse
import asyncio
import json
from contextlib import AsyncExitStack
from pathlib import Path

from consumer_sdk import Batch, ConfigurationError, Consumer, Message, Ordering, RetryPolicy
from consumer_sdk.adapters import KafkaAdapter
from consumer_sdk.admin import serve
from consumer_sdk.spark_bridge import SparkFeed
from consumer_sdk.stores import LocalStore
from examples.flights.children import report
from examples.flights.journal import Journal
from examples.flights.topics import GROUP

ANY_PORT = "127.0.0.1:0"


async def consume(options: argparse.Namespace) -> None:
    """Consumes until SIGTERM."""
    consumer = Consumer(
        # A short session: the group notices soon that a member was killed.
        KafkaAdapter(
            options.topic, bootstrap_servers=options.kafka, group=GROUP, session_timeout=6.0
        ),
        store=LocalStore(options.folder / "checkpoints.db"),
        retry=RetryPolicy(max_attempts=3, initial=0.2),
    )
    journal = Journal(options.journal)
    async with SparkFeed(options.folder / "feed") as feed, AsyncExitStack() as stack:

        async def handle(batch: Batch) -> None:
            journal.write(batch)
            good, bad = sort_out(batch)
            await feed.put_many(good)
            for message in bad:
                message.nack()  # tried again later, and dead-lettered at the limit
            # Returning acks those that are durable in the feed.

        report(page=await show(consumer, options.page, stack))
        await consumer.run(handle, batch_size=2_000, concurrency=2, ordering=Ordering.KEY)


async def show(consumer: Consumer, wanted: str, stack: AsyncExitStack) -> str:
    """Serves the consumer's page until the stack ends; returns its address."""
    try:
        server = await stack.enter_async_context(serve(consumer, address=wanted, actions=True))
    except ConfigurationError:  # somebody has taken the port that the killed consumer had
        server = await stack.enter_async_context(serve(consumer, address=ANY_PORT, actions=True))
    return server.address


def sort_out(batch: list[Message]) -> tuple[list[Message], list[Message]]:
    """Splits a batch into good flights and bad ones."""
    good: list[Message] = []
    bad: list[Message] = []
    for message in batch:
        (good if is_good(message.value) else bad).append(message)
    return good, bad


def is_good(value: bytes | None) -> bool:
    """Whether a flight was not cancelled, and arrived."""
    try:
        flight = json.loads(value or b"{}")
    except ValueError:
        return False
    return all(flight.get(name) is not None for name in ("dep_time", "arr_time"))


def main() -> None:
    """Reads the command line and consumes."""
    parser = argparse.ArgumentParser(prog="examples.flights.consume", description=__doc__)
    parser.add_argument("--kafka", metavar="HOST:PORT", required=True)
    parser.add_argument("--topic", required=True)
    parser.add_argument("--folder", type=Path, required=True, help="checkpoints and feed")
    parser.add_argument("--journal", type=Path, required=True, help="where deliveries are noted")
    parser.add_argument(
        "--page", metavar="HOST:PORT", default=ANY_PORT, help="address of its live page"
    )
    asyncio.run(consume(parser.parse_args()))


if __name__ == "__main__":
    main()
