"""A service that counts the clicks of a Kinesis stream. Several processes of it share the stream.

python examples/clicks.py "kinesis://eu-central-1/clicks?group=counting&dead_letter_stream=dead"

Checkpoints and leases are in a file, for the processes of one host (``--zookeeper`` for many hosts).
It runs until SIGTERM or Ctrl-C, and then finishes the records in its handlers.
"""

from __future__ import annotations

import argparse
import asyncio
import json

from consumer_sdk import Consumer, Message, Ordering, Reject, RetryPolicy
from consumer_sdk.adapters import open_url
from consumer_sdk.stores import LocalStore, ZooKeeperStore


async def handle(message: Message) -> None:
    """A return acks the click. An exception retries it, and dead-letters it at the retry limit."""
    click = json.loads(message.value or b"")
    if "page" not in click:
        raise Reject("a click without a page")  # no use in trying again
    sequence, sub_sequence = message.position
    print(f"{click['page']} {message.partition.id} {sequence}:{sub_sequence}", flush=True)


async def main() -> None:
    """Reads the command line and serves."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("url", help="kinesis://region/stream?group=name&dead_letter_stream=name")
    parser.add_argument(
        "--store", default="clicks.db", help="the SQLite file of checkpoints and leases"
    )
    parser.add_argument(
        "--zookeeper", metavar="HOST:PORT", help="keep them in this ZooKeeper instead"
    )
    options = parser.parse_args()
    hosts = options.zookeeper
    consumer = Consumer(
        open_url(options.url),
        store=ZooKeeperStore(hosts, root="/clicks") if hosts else LocalStore(options.store),
        retry=RetryPolicy(max_attempts=3, initial=0.1),
    )
    await consumer.run(handle, concurrency=100, ordering=Ordering.KEY)


if __name__ == "__main__":
    asyncio.run(main())
