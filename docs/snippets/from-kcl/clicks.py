"""Counts the clicks of a stream. Several processes of it share the shards. It runs until Ctrl-C."""

import asyncio
import os

from consumer_sdk import Consumer, Message
from consumer_sdk.adapters import KinesisAdapter
from consumer_sdk.stores import LocalStore

ENDPOINT = os.environ.get("KINESIS")  # None: Amazon's own


async def handle(message: Message) -> None:
    """One record, where processRecords gets a list."""
    print(f"counted {message.value!r}", flush=True)


adapter = KinesisAdapter(
    "clicks", group="billing", region_name="eu-central-1", endpoint_url=ENDPOINT
)
asyncio.run(Consumer(adapter, store=LocalStore("state.db")).run(handle))
