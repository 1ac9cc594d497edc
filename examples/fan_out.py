"""Fan-out: a handler splits records into lines, and worker tasks handle the lines.

A record is settled when all of its lines are.

python examples/fan_out.py --kafka 127.0.0.1:9092 --topic carts

It runs until SIGTERM or Ctrl-C, and then finishes the lines of its records in flight.
"""

from __future__ import annotations

import argparse
import asyncio
import json
from typing import TypeAlias

from consumer_sdk import Branch, Consumer, Message
from consumer_sdk.adapters import KafkaAdapter

Lines: TypeAlias = asyncio.Queue[tuple[bytes, Branch]]


async def work(lines: Lines) -> None:
    """Handles lines of all records. Each line settles its own branch."""
    while True:
        line, branch = await lines.get()
        try:
            item = json.loads(line)
        except ValueError as error:
            branch.reject(f"{line!r}: {error}")  # the whole record; or .fail(), to try it again
        else:
            print(f"packed {item['item']}", flush=True)
            branch.ack()


async def main() -> None:
    """Reads the command line, and splits."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kafka", metavar="HOST:PORT", default="127.0.0.1:9092")
    parser.add_argument("--topic", default="carts")
    options = parser.parse_args()
    lines: Lines = asyncio.Queue(maxsize=100)

    async def split(message: Message) -> None:
        """Its return does not ack the record: the branches do."""
        with message.tree() as tree:
            for line in (message.value or b"").splitlines():
                await lines.put((line, tree.branch()))

    consumer = Consumer(
        KafkaAdapter(options.topic, bootstrap_servers=options.kafka, group="packing"),
        ack_timeout=60.0,  # from the return of `split`: a line that is never settled comes again
    )
    async with asyncio.TaskGroup() as group:
        workers = [group.create_task(work(lines)) for _ in range(4)]
        await consumer.run(split)
        for worker in workers:
            worker.cancel()


if __name__ == "__main__":
    asyncio.run(main())
