"""``python -m benchmarks leases``: a group on a stream of 1 000 shards while a member joins and shards split.

Members are whole consumers, each in a process of its own with an in-memory Kinesis; their leases are in
a real ZooKeeper or a SQLite file, of which the benchmark looks at the stored table ten times a second.
"""

from __future__ import annotations

import asyncio
import json
import tempfile
import time
import uuid
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

from benchmarks.harness import Say
from benchmarks.kinesis.sharing import sharing
from benchmarks.markdown import figure, table
from benchmarks.ours.lease_member import GROUP, STREAM, LeaseJob
from benchmarks.stores import zookeeper
from consumer_sdk.abc import Leases
from consumer_sdk.records import Lease
from consumer_sdk.records.leases import is_readable
from consumer_sdk.stores.urls import store_from_url

__all__ = ["AIMS", "measure", "tables"]

AIMS = {
    "join_1000_leases_lost": "0",
    "join_1000_unowned_s": "≤ 3",
    "split_1000_ended_s": "≤ 30",
}
SHARDS = 1_000
MEMBERS = 3
LOOK = 0.1
PATIENCE = 300.0

Table = Mapping[str, Lease]


async def measure(*, quick: bool, say: Say) -> dict[str, Any]:
    """The worse of both stores for each figure of `AIMS`, and those of each store."""
    shards = SHARDS // 10 if quick else SHARDS
    stores: dict[str, dict[str, float]] = {}
    failures: dict[str, str] = {}
    async with AsyncExitStack() as stack:
        hosts = await stack.enter_async_context(zookeeper())
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        urls = {
            "zookeeper": f"zookeeper://{hosts}/benchmark-{uuid.uuid4().hex}",
            "sqlite": f"sqlite://{Path(folder) / 'state.db'}",
        }
        for name, url in urls.items():
            try:
                stores[name] = await _Group(LeaseJob(url, shards), say, name).live()
            except TimeoutError as error:
                failures[name] = str(error)
    worst = {key: max((s[key] for s in stores.values()), default=None) for key in AIMS}
    say("groups that share a shard")
    # In a thread, since it has event loops of its own.
    shared = await asyncio.to_thread(sharing, quick=quick)
    return worst | shared | {"stores": stores, "shards": shards, "failures": failures}


class _Group:
    """Members, and what is seen of their leases."""

    def __init__(self, job: LeaseJob, say: Say, name: str) -> None:
        self._job = job
        self._tell, self._name = say, name
        self._members: list[asyncio.subprocess.Process] = []
        self._unowned: dict[str, float] = {}
        self.longest = 0.0

    async def live(self) -> dict[str, float]:
        """The figures of one store."""
        async with self._leases() as leases:
            try:
                return await self._live(leases)
            finally:
                for member in self._members:
                    if member.returncode is None:
                        member.kill()
                    await member.wait()

    @asynccontextmanager
    async def _leases(self) -> AsyncIterator[Leases]:
        store = store_from_url(self._job.store)
        await store.open()
        try:
            leases = store.leases(GROUP, STREAM)
            if leases is not None:
                yield leases
        finally:
            await store.aclose()

    async def _live(self, leases: Leases) -> dict[str, float]:
        shards = self._job.shards
        self._say(f"{MEMBERS} members, {shards:,} shards")
        for _ in range(MEMBERS):
            await self._start()
        await self._until(leases, lambda seen: _is_even(seen, MEMBERS, shards), "even shares")
        self._say("one more joins")
        await self._start()
        self.longest = 0.0
        even = await self._until(
            leases, lambda seen: _is_even(seen, MEMBERS + 1, shards), "even shares again"
        )
        unowned = self.longest
        self._say("all shards are split")
        for member in self._members:
            if member.stdin is not None:
                member.stdin.write(b"split\n")
        ended = await self._until(leases, lambda seen: _ended(seen) == shards, "all ends")
        held = await self._until(
            leases, lambda seen: _is_even(seen, MEMBERS + 1, 2 * shards), "all children"
        )
        return {
            "join_1000_leases_lost": await self._stop(),
            "join_1000_unowned_s": round(unowned, 1),
            "join_1000_even_s": round(even, 1),
            "split_1000_ended_s": round(ended, 1),
            "split_1000_children_s": round(ended + held, 1),
        }

    def _say(self, line: str) -> None:
        self._tell(f"{self._name}: {line}")

    async def _start(self) -> None:
        pipe = asyncio.subprocess.PIPE
        self._members.append(
            await asyncio.create_subprocess_exec(*self._job.command(), stdin=pipe, stdout=pipe)
        )

    async def _stop(self) -> int:
        """Ends all; how many leases they have lost."""
        lost = 0
        for member in self._members:
            out, _ = await member.communicate(b"")
            lost += json.loads(out.splitlines()[-1])["lost"]
        return lost

    async def _until(self, leases: Leases, is_so: Callable[[Table], bool], what: str) -> float:
        """The seconds until the stored leases are so.

        Raises:
            TimeoutError: says how far it has come.
        """
        began = time.monotonic()
        while not is_so(seen := (await leases.view()).leases):
            self._note(seen)
            if time.monotonic() - began > PATIENCE:
                owned = sum(lease.owner is not None for lease in seen.values())
                raise TimeoutError(
                    f"no {what} after {PATIENCE:.0f} s: {len(seen)} leases, {owned} held, "
                    f"{_ended(seen)} ended"
                )
            await asyncio.sleep(LOOK)
        took = time.monotonic() - began
        self._say(f"{what} after {took:.1f} s")
        return took

    def _note(self, seen: Table) -> None:
        """How long the partitions that could be read have had no owner."""
        now = time.monotonic()
        free = [p for p in seen if seen[p].owner is None and is_readable(p, seen)]
        self._unowned = {p: self._unowned.get(p, now) for p in free}
        self.longest = max([self.longest, *(now - since for since in self._unowned.values())])


def _is_even(seen: Table, members: int, shards: int) -> bool:
    """All that can be read is held, by so many, and nobody waits."""
    held: dict[str, int] = {}
    for lease in seen.values():
        if lease.owner is not None and lease.wanted_by is None and not lease.ended:
            held[lease.owner] = held.get(lease.owner, 0) + 1
    is_whole = sum(held.values()) == shards and len(held) == members
    return is_whole and max(held.values()) - min(held.values()) <= 1


def _ended(seen: Table) -> int:
    return sum(lease.ended for lease in seen.values())


def tables(result: Mapping[str, Any]) -> str:
    """The results in Markdown."""
    aims = [(f"`{key}`", figure(result[key], 1), aim) for key, aim in AIMS.items()]
    stores: Mapping[str, Mapping[str, float]] = result["stores"]
    keys: Sequence[str] = [*next(iter(stores.values()), {})]
    rows = [(f"`{key}`", *(figure(each[key], 1) for each in stores.values())) for key in keys]
    return "\n\n".join(
        [table(("figure", "measured", "aim"), aims), table(("figure", *stores), rows)]
    )
