"""How often a shard is asked for records, counted where the calls arrive."""

from __future__ import annotations

import asyncio

from benchmarks.kinesis.latency import make_consumer
from benchmarks.kinesis.replay import ReplayShard, most_in_a_second, replaying

__all__ = ["SHARDS", "most_calls"]

SHARDS = {
    "small answers": ReplayShard(records=5_000, page=10),
    "full answers": ReplayShard(records=100_000),
    "idle": ReplayShard(records=0),
    "throttled": ReplayShard(records=5_000, page=10, refused=2),
}
"""What each shard of the stream answers with."""


async def most_calls(seconds: float) -> dict[str, int]:
    """Drains a stream with default options; the most calls in any second, for each shard."""
    async with replaying(list(SHARDS.values())) as server:
        async with make_consumer(server.url, "replay") as consumer:
            try:
                async with asyncio.timeout(seconds):
                    async for batch in consumer.batches():
                        batch.ack()
            except TimeoutError:
                pass
        calls = await server.calls()
    return {
        kind: most_in_a_second(times) for kind, times in zip(SHARDS, calls.values(), strict=True)
    }
