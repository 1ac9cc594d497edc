"""``python -m benchmarks stores``: what a flush and a start cost in ZooKeeper and in SQLite.

The yardsticks are bare kazoo calls of the same data on the same server: one request that sets a
thousand znodes, ten thousand pipelined gets, and a thousand sets one after the other, which is how
the seeds' spouts wrote. A load reads checkpoints as the gets do; a claim, which is what a consumer
does at its start, writes each of them as well.

How many holes a Kafka commit carries is counted beside that: half of the records are settled, in
random order.

Sides take turns, in opposite order in every second round; a ratio is the median of the rounds'
ratios. Time is wall-clock: waiting for the server is most of it.
"""

from __future__ import annotations

import asyncio
import gc
import tempfile
import time
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from statistics import median
from typing import Any

from kazoo.client import KazooClient

from benchmarks.commit_metadata import holes_that_fit
from benchmarks.harness import Say
from benchmarks.markdown import figure, table
from consumer_sdk.abc import CheckpointStore, StoreItem
from consumer_sdk.records import Assignment, Checkpoint, OutcomeKind, Partition
from consumer_sdk.stores import LocalStore, ZooKeeperStore
from consumer_sdk.testing.servers import ExternalZooKeeper, ZooKeeperServer, external_address
from consumer_sdk.trackers import encode_checkpoint

__all__ = ["AIMS", "measure", "tables", "zookeeper"]

AIMS = {
    "zk_flush_1000_vs_bare_multi": "≤ 2",
    "zk_load_10000_vs_bare_gets": "≤ 1.3",
    "zk_claim_10000_vs_bare_gets": "-",
    "zk_vs_per_partition_sets": "≥ 5",
    "local_flush_1000_ms": "-",
    "kafka_metadata_holes": "-",
}
GROUP = "benchmark"
DIRTY = 1_000
ALL = 10_000
CREATES = 500
"""In one request, so that it stays below 1 MiB."""

Side = Callable[[], Awaitable[object]]
Times = dict[str, list[float]]


async def measure(*, quick: bool, say: Say) -> dict[str, Any]:
    """Milliseconds of each side, and the ratios between ours and the yardsticks."""
    rounds = 3 if quick else 15
    root = f"/benchmark-{uuid.uuid4().hex}"
    async with zookeeper() as hosts, _opened(ZooKeeperStore(hosts, root=root)) as store:
        say(f"claiming and saving {ALL:,} partitions")
        ours, bare = await Ours.on(store), await asyncio.to_thread(Bare, hosts, root)
        try:
            say(f"flushes of {DIRTY:,} partitions")
            times = await _take_turns({"zk_flush": ours.flush, "bare_multi": bare.multi}, rounds)
            say(f"loads of {ALL:,} partitions, and {DIRTY:,} sets")
            sides: dict[str, Side] = {"zk_load": ours.load, "bare_gets": bare.gets}
            times |= await _take_turns(sides | {"zk_claim": ours.claim}, rounds // 3)
            times |= await _take_turns({"bare_sets": bare.sets}, rounds // 5 + 1)
        finally:
            await asyncio.to_thread(bare.close)
    with tempfile.TemporaryDirectory() as folder:
        async with _opened(LocalStore(Path(folder) / "state.db")) as local:
            ours = await Ours.on(local)
            times |= await _take_turns({"local_flush": ours.flush}, rounds)
    return _report(times)


def tables(result: Mapping[str, Any]) -> str:
    """The results in Markdown."""
    aims = [(f"`{key}`", figure(result[key], 2), aim) for key, aim in AIMS.items()]
    times = [(NAMES[name], figure(ms, 1)) for name, ms in result["ms"].items()]
    return "\n\n".join([table(("figure", "measured", "aim"), aims), table(("what", "ms"), times)])


NAMES = {
    "zk_flush": f"`ZooKeeperStore.save` of {DIRTY:,} partitions",
    "bare_multi": f"kazoo: one request that sets {DIRTY:,} znodes",
    "zk_load": f"`ZooKeeperStore.peek` of {ALL:,} partitions",
    "bare_gets": f"kazoo: {ALL:,} pipelined gets",
    "zk_claim": f"`ZooKeeperStore.claim` of {ALL:,} partitions: reads them and writes the fence",
    "bare_sets": f"kazoo: {DIRTY:,} sets, each waited for",
    "local_flush": f"`LocalStore.save` of {DIRTY:,} partitions",
}


class Ours:
    """A store with checkpoints in it."""

    def __init__(self, store: CheckpointStore) -> None:
        self._store = store
        self._grants = [Assignment(Partition("orders", str(n)), 1) for n in range(ALL)]
        self._items = [StoreItem(a, _text(a.partition)) for a in self._grants]

    @classmethod
    async def on(cls, store: CheckpointStore) -> Ours:
        """Everything is claimed and saved once."""
        ours = cls(store)
        await ours.claim()
        await ours._save(ours._items)
        return ours

    async def flush(self) -> None:
        """Saves what is dirty."""
        await self._save(self._items[:DIRTY])

    async def load(self) -> None:
        """Reads every checkpoint."""
        await self._store.peek(GROUP, [a.partition for a in self._grants])

    async def claim(self) -> None:
        """What a consumer does at its start: it reads them, and takes each over."""
        await self._store.claim(GROUP, self._grants)

    async def _save(self, items: Sequence[StoreItem]) -> None:
        outcomes = await self._store.save(GROUP, items)
        if {outcome.kind for outcome in outcomes} != {OutcomeKind.DURABLE}:
            raise RuntimeError(f"a save failed: {outcomes[0]!r}")


class Bare:
    """kazoo, as one would use it in a thread; the data is what a store has written."""

    def __init__(self, hosts: str, root: str) -> None:
        self._client = client = KazooClient(hosts)
        client.start()
        self._theirs = [f"{root}/{GROUP}/orders/{number}" for number in range(ALL)]
        self._root = f"{root}-bare"
        self._paths = [f"{self._root}/{number}" for number in range(DIRTY)]
        self._data, _ = client.get(self._theirs[0])
        client.ensure_path(self._root)
        for first in range(0, DIRTY, CREATES):
            request = client.transaction()
            for path in self._paths[first : first + CREATES]:
                request.create(path)
            request.commit()

    async def multi(self) -> None:
        """Sets all in one request."""
        request = self._client.transaction()
        for path in self._paths:
            request.set_data(path, self._data)
        request.commit()

    async def gets(self) -> None:
        """Gets what the store has, pipelined."""
        for handle in [self._client.get_async(path) for path in self._theirs]:
            handle.get()

    async def sets(self) -> None:
        """Sets one after the other."""
        for path in self._paths:
            self._client.set(path, self._data)

    def close(self) -> None:
        """Removes all znodes, ours too, and ends the session."""
        for root in (self._root, self._root.removesuffix("-bare")):
            self._client.delete(root, recursive=True)
        self._client.stop()
        self._client.close()


def _text(partition: Partition) -> str:
    """A checkpoint with a few holes: about what is flushed under load."""
    checkpoint = Checkpoint(
        watermark=123_456,
        resume=123_457,
        ranges=((123_460, 123_480),),
        attempts={123_457: (1, 1_700_000_000.0)},
    )
    text, _ = encode_checkpoint(
        checkpoint, broker="kafka", partition=partition, encode_position=str
    )
    return text


async def _take_turns(sides: Mapping[str, Side], rounds: int) -> Times:
    times: Times = {name: [] for name in sides}
    for number in range(rounds + 1):
        for name in list(sides)[:: -1 if number % 2 else 1]:
            gc.collect()
            began = time.perf_counter()
            await sides[name]()
            times[name].append(time.perf_counter() - began)
    return {name: found[1:] for name, found in times.items()}  # the first round warms up


def _report(times: Times) -> dict[str, Any]:
    def ratio(ours: str, yardstick: str) -> float:
        return median(a / b for a, b in zip(times[ours], times[yardstick], strict=True))

    ms = {name: round(median(found) * 1000, 2) for name, found in times.items()}
    return {
        "zk_flush_1000_vs_bare_multi": round(ratio("zk_flush", "bare_multi"), 2),
        "zk_load_10000_vs_bare_gets": round(ratio("zk_load", "bare_gets"), 2),
        "zk_claim_10000_vs_bare_gets": round(ratio("zk_claim", "bare_gets"), 2),
        "zk_vs_per_partition_sets": round(ms["bare_sets"] / ms["zk_flush"], 1),
        "local_flush_1000_ms": ms["local_flush"],
        "kafka_metadata_holes": holes_that_fit(),
        "ms": ms,
    }


@asynccontextmanager
async def _opened(store: CheckpointStore) -> AsyncIterator[CheckpointStore]:
    await store.open()
    try:
        yield store
    finally:
        await store.aclose()


@asynccontextmanager
async def zookeeper() -> AsyncIterator[str]:
    """A ZooKeeper that already runs, where CONSUMER_SDK_ZOOKEEPER names one, else our own."""
    if address := external_address("CONSUMER_SDK_ZOOKEEPER"):
        yield ExternalZooKeeper(address).hosts
    else:
        async with ZooKeeperServer(quick=False) as server:
            yield server.hosts
