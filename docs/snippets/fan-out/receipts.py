"""Has the lines of a record stored by other processes, which send back receipts."""

import asyncio
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor

from consumer_sdk import Consumer, Message, Receipts
from consumer_sdk.testing.memory import MemoryAdapter, MemoryBroker


def store(line: bytes) -> None:
    """Stands for a database."""


# -- the task
def task(rows: Iterable[tuple[bytes, bytes]]) -> Iterator[bytes]:
    """In Spark: ``lines.mapPartitions(task).collect()``."""
    receipts = Receipts()
    for token, line in rows:
        try:
            store(line)
        except ValueError as error:
            receipts.fail(token, str(error))  # or .reject(token, …)
        else:
            receipts.ack(token)
    yield bytes(receipts)


# -- the rest
def in_process(rows: list[tuple[bytes, bytes]]) -> list[bytes]:
    """A pool can send no iterator."""
    return list(task(rows))


async def main() -> None:
    """One record, whose three lines go to another process."""
    broker = MemoryBroker()
    broker.create_stream("texts")
    broker.append("texts", b"one\ntwo\nthree")
    consumer = Consumer(MemoryAdapter(broker, "texts", group="g"))

    async def handle(message: Message) -> None:
        with message.tree() as tree:
            lines = (message.value or b"").splitlines()
            rows = [(tree.branch().token(), line) for line in lines]
        loop = asyncio.get_running_loop()
        for result in await loop.run_in_executor(pool, in_process, rows):
            print("settled branches:", consumer.settle(result))
        consumer.stop()

    with ProcessPoolExecutor(1) as pool:
        await consumer.run(handle)
    print("settled records:", consumer.stats().settled)


if __name__ == "__main__":
    asyncio.run(main())
