"""Counts words, as a topology of a spout, a bolt that splits and a bolt that counts. It runs until Ctrl-C."""

import asyncio
import os
from collections import Counter

from consumer_sdk import Branch, Consumer, Message, RetryPolicy
from consumer_sdk.adapters import KafkaAdapter
from consumer_sdk.stores import LocalStore

KAFKA = os.environ.get("KAFKA", "127.0.0.1:9092")
counts: Counter[str] = Counter()
words: asyncio.Queue[tuple[str, Branch]] = asyncio.Queue()


async def split(message: Message) -> None:
    """The first bolt: a sentence becomes words, each anchored to its sentence."""
    sentence = (message.value or b"").decode()
    with message.tree() as tree:
        for word in sentence.split():
            words.put_nowait((word, tree.branch()))


async def count() -> None:
    """The second bolt: leaving the block acks the word, and an exception fails the sentence."""
    while True:
        word, branch = await words.get()
        with branch:
            counts[word] += 1
            print(word, counts[word], flush=True)


async def main() -> None:
    """The spout is the consumer."""
    consumer = Consumer(
        KafkaAdapter("from-storm", bootstrap_servers=KAFKA, group="words"),
        store=LocalStore("state.db"),
        retry=RetryPolicy(max_attempts=5),
        ack_timeout=30,  # topology.message.timeout.secs
    )
    bolt = asyncio.create_task(count())
    await consumer.run(split, concurrency=1000)  # topology.max.spout.pending
    bolt.cancel()


asyncio.run(main())
