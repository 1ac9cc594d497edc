r"""Several consumers in one process: orders of one broker, clicks of another. One SIGTERM ends both.

python examples/several.py "kafka://127.0.0.1:9092/orders?group=shop" \
    "kinesis://eu-central-1/clicks?group=shop&dead_letter_stream=dead"

If one of them fails, the other one drains too, and the program ends with that error.
"""

from __future__ import annotations

import argparse
import asyncio
import json

from consumer_sdk import Batch, Consumer, Group, Message, RetryPolicy


async def charge(message: Message) -> None:
    """Handles an order."""
    order = json.loads(message.value or b"")
    print(f"charged {order['customer']} {order['amount']}", flush=True)


async def count(batch: Batch) -> None:
    """Handles a batch of clicks. An error would retry the whole batch, so a bad click is rejected alone."""
    for message in batch:
        try:
            page = json.loads(message.value or b"")["page"]
        except (ValueError, TypeError, KeyError):
            message.reject("a click without a page")
        else:
            print(f"seen {page}", flush=True)


async def main() -> None:
    """Reads the command line and serves."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("orders", help="a URL, such as kafka://host:9092/orders?group=shop")
    parser.add_argument(
        "clicks", help="a URL, such as kinesis://region/clicks?group=shop, which needs a store"
    )
    parser.add_argument("--store", default="several.db", help="the file of the clicks' checkpoints")
    options = parser.parse_args()
    retry = RetryPolicy(max_attempts=3, initial=0.1)
    orders = Consumer(options.orders, retry=retry)
    clicks = Consumer(options.clicks, store=f"sqlite:{options.store}", retry=retry)
    group = Group({orders: charge})
    group.add(clicks, count, batch_size=100)
    await group.run()


if __name__ == "__main__":
    asyncio.run(main())
