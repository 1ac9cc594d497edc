"""Who drains a shard, in which variants: from a replay server, and from kinesalite."""

from __future__ import annotations

import importlib.util
import uuid
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

from benchmarks.contestant import Job
from benchmarks.harness import Command, Contestant
from benchmarks.kinesis.records import key, value
from benchmarks.kinesis.replay import MOST, ReplayShard, replaying
from benchmarks.process import python_contestant
from consumer_sdk.testing.servers import KinesisEndpoint

__all__ = ["on_kinesalite", "on_replay"]

Setup = dict[str, Any]

HANDLERS = 256
GC = 50_000
WARMUP = MOST
"""The first answer: everybody has read it, or begun to read the next one, when clocks start."""

SPARE = MOST
"""Records beyond those that are counted: a batch at the stream's end waits for more to come."""

SETUPS: dict[str, Setup] = {
    "asyncio, rare gc": {"gc_threshold": GC},
    "asyncio": {},
}
"""How a contestant may be run, likeliest first; each tried."""

QUEUES: dict[str, Setup] = {
    "asyncio, rare gc, queue of 10,000": {"gc_threshold": GC, "concurrency": 10_000},
    "asyncio, queue of 10,000": {"concurrency": 10_000},
    "asyncio, rare gc, queue of 30,000": {"gc_threshold": GC, "concurrency": 30_000},
    "uvloop, rare gc, queue of 10,000": {
        "loop": "uvloop",
        "gc_threshold": GC,
        "concurrency": 10_000,
    },
}
"""How async-kinesis may be; its queue holds an answer by default, or more so that none waits."""

if importlib.util.find_spec("uvloop") is None:
    QUEUES = {name: setup for name, setup in QUEUES.items() if "loop" not in setup}


@asynccontextmanager
async def on_replay(records: int) -> AsyncIterator[list[Contestant]]:
    """The contestants on a replay server of one shard, which has more than they count."""
    async with replaying([ReplayShard(WARMUP + records + SPARE)]) as server:
        job = Job(servers=server.url, topic="replay", warmup=WARMUP, records=records)
        yield [
            _contestant("async_kinesis", "peers.async_kinesis", job, QUEUES),
            _contestant("ours_batches", "ours.kinesis_batches", job, SETUPS),
            _contestant("ours_messages", "ours.kinesis_messages", job, SETUPS),
            _contestant("ours_run", "ours.kinesis_run", replace(job, concurrency=HANDLERS), SETUPS),
            _contestant("raw_loop", "peers.raw_kinesis", job, _first(SETUPS)),
        ]


async def on_kinesalite(server: KinesisEndpoint, stream: str, records: int) -> list[Contestant]:
    """Fills a stream of one shard; ours, and a bare loop that reads the same."""
    await server.create_stream(stream)
    everything = range(WARMUP + records + SPARE)
    await server.put(stream, ((key(number), value(number)) for number in everything))
    job = Job(servers=server.endpoint_url, topic=stream, warmup=WARMUP, records=records)
    setup = _first(SETUPS)
    return [
        _contestant("raw_kinesalite", "peers.raw_kinesis", job, setup),
        _contestant("ours_kinesalite", "ours.kinesis_batches", job, setup),
    ]


def _first(setups: dict[str, Setup]) -> dict[str, Setup]:
    return dict(list(setups.items())[:1])


def _contestant(name: str, module: str, job: Job, setups: dict[str, Setup]) -> Contestant:
    variants = {label: _command(module, replace(job, **setup)) for label, setup in setups.items()}
    return Contestant(name, variants)


def _command(module: str, job: Job) -> Command:
    def command(share: float) -> Sequence[str]:
        records, warmup = int(job.records * share), int(job.warmup * share)
        group = f"benchmark-{uuid.uuid4().hex}"
        return python_contestant(
            f"benchmarks.{module}", replace(job, group=group, records=records, warmup=warmup)
        )

    return command
