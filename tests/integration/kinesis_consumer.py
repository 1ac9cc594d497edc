"""A consumer of Kinesis in a process of its own, to be killed: says what it processed in a file.

``python -m tests.integration.kinesis_consumer ENDPOINT STREAM STORE FILE``
"""

from __future__ import annotations

import asyncio
import os
import random
import sys
import time
from pathlib import Path

from consumer_sdk import Consumer, Message
from consumer_sdk.abc import CheckpointStore
from consumer_sdk.adapters import KinesisAdapter
from consumer_sdk.stores import LocalStore, ZooKeeperStore

__all__ = ["BLOCK", "GROUP", "LEASE", "REGION", "released_by", "store_at"]

GROUP, REGION = "team", "us-east-1"
LEASE = 5.0
"""Seconds; longer than a busy machine stands still."""

BLOCK = b"block"
"""A record that the handler computes for, without a pause, until `released_by` is there."""


def released_by(file: Path | str) -> Path:
    """Who makes this file lets the handler of `BLOCK` go on."""
    return Path(f"{file}.released")


def store_at(place: str) -> CheckpointStore:
    """The store in a file, or at ``zookeeper:hosts``."""
    kind, _, hosts = place.partition(":")
    return ZooKeeperStore(hosts, session_timeout=LEASE) if hosts else LocalStore(kind)


async def main(endpoint: str, stream: str, store: str, file: str) -> None:
    """Processes until it is killed or stopped."""
    out = os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    chance = random.Random(os.getpid())
    released = released_by(file)

    async def handle(message: Message) -> None:
        await asyncio.sleep(chance.random() * 0.005)
        if message.value == BLOCK:
            while not released.exists():
                time.sleep(0.05)  # noqa: ASYNC251 - what a handler must not do
        sequence, _ = message.position
        os.write(out, f"{os.getpid()} {message.partition.id} {sequence}\n".encode())

    adapter = KinesisAdapter(
        stream,
        group=GROUP,
        region_name=REGION,
        endpoint_url=endpoint,
        aws_access_key_id="test",
        aws_secret_access_key="test",  # noqa: S106 - the server takes any
        lease_duration=LEASE,
        poll_interval=0.5,
    )
    consumer = Consumer(adapter, store=store_at(store), flush_interval=0.05)
    await consumer.run(handle, concurrency=32)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
