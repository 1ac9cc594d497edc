"""How long a consumer of 10 000 partitions keeps the event loop: a flush, timeouts, and a revoke.

100 000 records are in flight. A turn is measured in CPU time of the loop's thread, so that other
programs do not count. What lives is kept from the garbage collector's passes, which would be
measured instead: a full one takes longer than any of these.
"""

from __future__ import annotations

import asyncio
import gc
import json
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from benchmarks.ours.memory_partitions import STREAM, all_held, broker_with
from consumer_sdk import Consumer, Message, Ordering, RetryPolicy
from consumer_sdk.testing.memory import MemoryAdapter

__all__ = ["holds"]

TIMEOUT = 3.0


class _Longest:
    """The longest that one callback of the loop took."""

    def __init__(self) -> None:
        self.ms = 0.0

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Watches the loop meanwhile."""
        handle_class: Any = asyncio.Handle
        run, is_watching = handle_class._run, True  # noqa: SLF001 - nothing public shows a turn

        def timed(handle: Any) -> None:
            began = time.thread_time()
            run(handle)
            if is_watching:  # not of what the watcher does afterwards
                self.ms = max(self.ms, (time.thread_time() - began) * 1000)

        gc.collect()
        gc.freeze()
        handle_class._run = timed  # noqa: SLF001 - put back below
        try:
            yield
        finally:
            is_watching = False
            handle_class._run = run  # noqa: SLF001 - as it was


async def holds(partitions: int, records: int) -> dict[str, float]:
    """The longest turn in milliseconds, of each of the three."""
    return {
        "flush": await _flush(partitions, records),
        "due": await _due(partitions, records),
        "purge": await _purge(partitions, records),
    }


def _consumer(partitions: int, records: int, **options: Any) -> Consumer:
    adapter = MemoryAdapter(broker_with(partitions, records), STREAM, group="benchmark")
    return Consumer(adapter, max_in_flight=2 * records, **options)


async def _pulled(consumer: Consumer, records: int) -> list[Message]:
    messages: list[Message] = []
    async for batch in consumer.batches(max_messages=500):
        messages += batch
        if len(messages) == records:
            break
    return messages


async def _flush(partitions: int, records: int) -> float:
    longest = _Longest()
    async with _consumer(partitions, records, flush_interval=3600.0) as consumer:
        await all_held(consumer, partitions)
        messages = await _pulled(consumer, records)
        await consumer.flush()
        for message in messages:
            message.ack()
        with longest.watching():
            await consumer.flush()
    return longest.ms


async def _due(partitions: int, records: int) -> float:
    longest, retry = _Longest(), RetryPolicy(initial=3600.0, maximum=3600.0)
    options: dict[str, Any] = {"ack_timeout": TIMEOUT, "retry": retry, "max_retrying": records}
    async with _consumer(partitions, records, **options) as consumer:
        await all_held(consumer, partitions)
        await _pulled(consumer, records)
        while consumer.stats().failed < records:
            with longest.watching():
                await asyncio.sleep(1.0)
    return longest.ms


async def _purge(partitions: int, records: int) -> float:
    """Of what waits for handlers: the broker asks for all partitions."""
    longest, is_over = _Longest(), asyncio.Event()

    async def handle(message: Message) -> None:  # noqa: ARG001 - it waits, as all behind it
        await is_over.wait()

    async with _consumer(partitions, records) as consumer:
        await all_held(consumer, partitions)
        run = consumer.run(handle, concurrency=100, ordering=Ordering.PARTITION)
        running = asyncio.create_task(run)
        while consumer.stats().in_flight < records:  # noqa: ASYNC110 - nobody tells
            await asyncio.sleep(0.2)
        with longest.watching():
            consumer.stop()
            await running
            asyncio.get_running_loop().call_later(0.5, is_over.set)
            await consumer.aclose()
    return longest.ms


if __name__ == "__main__":
    print(json.dumps(asyncio.run(holds(*json.loads(sys.argv[1])))))
