"""A member of a group on a stream of many shards, which are empty: only its leases are of interest.

Each process has such a stream of its own; they are alike, so that to the store all members read one. A line ``split`` on standard input splits every shard, the end of it ends the member, which
then prints how many leases it has lost without handing them over.
"""

from __future__ import annotations

import asyncio
import json
import logging
import sys
import time
from collections.abc import AsyncGenerator, Sequence
from dataclasses import asdict, dataclass

from consumer_sdk import Consumer, Message
from consumer_sdk.adapters.kinesis import KinesisAdapter
from consumer_sdk.adapters.kinesis.options import KinesisOptions
from consumer_sdk.adapters.kinesis.service.service import (
    IteratorStart,
    Page,
    Service,
    Shard,
    StreamFacts,
)
from consumer_sdk.stores.urls import store_from_url

__all__ = ["GROUP", "STREAM", "EmptyShards", "LeaseJob"]

GROUP, STREAM = "benchmark", "s"
LOST = "is not held any more"


@dataclass(frozen=True, slots=True)
class LeaseJob:
    """What a member is to do: share so many shards, by leases in that store."""

    store: str
    shards: int

    def command(self) -> list[str]:
        """The command that runs it in a process of its own."""
        return [sys.executable, "-m", "benchmarks.ours.lease_member", json.dumps(asdict(self))]


class EmptyShards(Service):
    """A stream of shards without records, which answers at once."""

    def __init__(self, shards: int) -> None:
        self._shards = {_id(number): Shard(_id(number)) for number in range(shards)}

    def split(self) -> None:
        """Each of the first shards has two children."""
        parents = list(self._shards)
        for number, parent in enumerate(parents):
            self._shards[parent] = Shard(parent, is_closed=True)
            for child in (_id(len(parents) + 2 * number + each) for each in range(2)):
                self._shards[child] = Shard(child, (parent,))

    async def open(self) -> StreamFacts:
        return await self.describe()

    async def describe(self) -> StreamFacts:
        return StreamFacts(f"arn:aws:kinesis:local:0:stream/{STREAM}", 0.0)

    async def shards(self) -> Sequence[Shard]:
        return list(self._shards.values())

    async def iterator(self, shard: str, start: IteratorStart) -> str:  # noqa: ARG002 - all alike
        return shard

    async def records(self, iterator: str, limit: int) -> Page:  # noqa: ARG002 - there are none
        is_closed = self._shards[iterator].is_closed
        return Page(next=None if is_closed else iterator, behind=0, has_children=is_closed)

    async def consumer(self, name: str) -> str:
        raise NotImplementedError(name)

    def subscribe(
        self, consumer: str, shard: str, start: IteratorStart
    ) -> AsyncGenerator[Page, None]:
        raise NotImplementedError(consumer, shard, start)

    async def time(self) -> float:
        return time.time()

    async def aclose(self) -> None:
        """Nothing to close."""


def _id(number: int) -> str:
    return f"shardId-{number:012}"


class _Adapter(KinesisAdapter):
    service: Service

    def _make_service(self, options: KinesisOptions) -> Service:  # noqa: ARG002 - of one stream
        return self.service


class _Losses(logging.Handler):
    count = 0

    def emit(self, record: logging.LogRecord) -> None:
        self.count += LOST in record.msg


async def _live(job: LeaseJob) -> None:
    adapter = _Adapter(STREAM, group=GROUP)
    adapter.service = service = EmptyShards(job.shards)
    consumer = Consumer(adapter, store=store_from_url(job.store))
    obeying = asyncio.create_task(_obey(service, consumer))
    await consumer.run(_ignore, handle_signals=False)
    await obeying


async def _obey(service: EmptyShards, consumer: Consumer) -> None:
    while await asyncio.to_thread(sys.stdin.readline) == "split\n":
        service.split()
    consumer.stop()


async def _ignore(message: Message) -> None:
    raise AssertionError(f"{message}: the shards are empty")


def main() -> None:
    """Lives until its standard input ends."""
    losses = _Losses()
    logging.getLogger("consumer_sdk").addHandler(losses)
    asyncio.run(_live(LeaseJob(**json.loads(sys.argv[1]))))
    print(json.dumps({"lost": losses.count}))


if __name__ == "__main__":
    main()
