"""A consumer of Pulsar in a process of its own, to be killed or frozen: says what it processed in a file.

``python -m tests.integration.pulsar_consumer SERVICE_URL ADMIN_URL TOPIC TYPE FILE [STORE]``
"""

from __future__ import annotations

import asyncio
import os
import random
import sys

from consumer_sdk import Consumer, Message, Ordering, RetryPolicy
from consumer_sdk.adapters import PulsarAdapter
from consumer_sdk.stores import LocalStore
from tests.integration.pulsar_field import GROUP

POISON = "poison"
"""A record that no attempt can process."""

RETRY = RetryPolicy(max_attempts=4, initial=1.0)


async def main(service_url: str, admin_url: str, topic: str, kind: str, *files: str) -> None:
    """Processes until it is killed or stopped.

    Args:
        files: what it writes to, and a store's if it has one.
    """
    file, *store = files
    out = os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    chance = random.Random(os.getpid())

    async def handle(message: Message) -> None:
        await asyncio.sleep(chance.random() * 0.005)
        value = (message.value or b"").decode()
        os.write(out, f"{os.getpid()} {value} {message.attempt}\n".encode())
        if value == POISON:
            raise ValueError(value)

    adapter = PulsarAdapter(
        topic,
        service_url=service_url,
        admin_url=admin_url,
        subscription=GROUP,
        type=kind,  # type: ignore[arg-type]  # the test's
    )
    kept = LocalStore(store[0]) if store else None
    consumer = Consumer(adapter, store=kept, retry=RETRY, flush_interval=0.05)
    ordering = Ordering.NONE if kind == "shared" else Ordering.KEY
    await consumer.run(handle, concurrency=32, ordering=ordering)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
