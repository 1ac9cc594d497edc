"""Programs that are wrong: a type checker finds the mistake of each line that it is told to ignore.

An ignore that ignores nothing is an error of its own, so that a mistake which is not found any more
is one too.
"""

from __future__ import annotations

from consumer_sdk import Batch, Consumer, Message
from consumer_sdk.adapters import KafkaAdapter
from consumer_sdk.stores import LocalStore

URL = "kafka://127.0.0.1:9092/orders?group=billing"


async def of_a_message(_message: Message) -> None:
    """Takes one message."""


async def of_a_batch(_batch: Batch) -> None:
    """Takes a batch."""


def that_blocks(_message: Message) -> None:
    """Is no coroutine function."""


async def runs(consumer: Consumer) -> None:
    """A handler has to fit ``batch_size``, and to be awaitable."""
    await consumer.run(of_a_batch)  # type: ignore[arg-type]
    await consumer.run(of_a_message, batch_size=100)  # type: ignore[arg-type]
    await consumer.run(that_blocks)  # type: ignore[arg-type]
    await consumer.run(of_a_message, ordering="keys")  # type: ignore[call-overload]


def consumers() -> None:
    """Options that take one of a few texts, and objects rather than their classes."""
    Consumer(URL, start="newest")  # type: ignore[arg-type]
    Consumer(URL, restart="anew")  # type: ignore[arg-type]
    Consumer(URL, out_of_range="resume")  # type: ignore[arg-type]
    Consumer(URL, lag_policy="drop")  # type: ignore[arg-type]
    Consumer(URL, hole_policy="dead-letter")  # type: ignore[arg-type]
    Consumer(URL, retry=5)  # type: ignore[arg-type]
    Consumer(URL, store=LocalStore)  # type: ignore[arg-type]
    KafkaAdapter("orders", bootstrap_servers="h:9092", isolation_level="committed")  # type: ignore[arg-type]
