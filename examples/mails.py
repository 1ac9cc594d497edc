"""A service that sends the mails of a Pulsar topic. Several processes of it share the mails.

python examples/mails.py "pulsar://127.0.0.1:6650/mails?subscription=sending&type=shared&retry_topic=yes"

A mail that is to go out later waits at the broker, on the retry topic, and does not count as in flight.
The service runs until SIGTERM or Ctrl-C, and then finishes the records in its handlers.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import time

from consumer_sdk import Consumer, Message, Ordering, Reject, RetryPolicy
from consumer_sdk.adapters import PulsarAdapter


class Sending:
    """Handles mails: ``{"to": "ann@example.org", "not_before": 1700000000}``."""

    def __init__(self, adapter: PulsarAdapter) -> None:
        self._adapter = adapter

    async def handle(self, message: Message) -> None:
        """A return acks the mail. An exception retries it, and dead-letters it at the retry limit."""
        mail = json.loads(message.value or b"")
        if "to" not in mail:
            raise Reject("a mail to nobody")  # no use in trying again
        delay = mail.get("not_before", 0) - time.time()
        if delay > 0:
            await self._adapter.reconsume_later(message, delay)
            return
        times = int(dict(message.headers).get("RECONSUMETIMES") or 0)
        print(f"sent to {mail['to']}, postponed {times} times", flush=True)


async def main() -> None:
    """Reads the command line and serves."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("url", help="pulsar://host:port/topic?subscription=…&retry_topic=yes")
    options = parser.parse_args()
    adapter = PulsarAdapter.from_url(options.url)
    consumer = Consumer(adapter, retry=RetryPolicy(max_attempts=3, initial=0.1))
    await consumer.run(Sending(adapter).handle, concurrency=100, ordering=Ordering.NONE)


if __name__ == "__main__":
    asyncio.run(main())
