"""Races of members with their store and with one another, each of which a seed has found."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from consumer_sdk import Consumer
from consumer_sdk.stores import MemoryStore
from consumer_sdk.testing import Simulation, simulate
from consumer_sdk.testing.kinesis import FakeKinesis, FakeService
from tests.adapters.kinesis.harness import FakeAdapter

T = TypeVar("T")

LEASE, HANDOVER = 2.0, 4.0


class SilentStore:
    """A way to the store that does not answer at some seams."""

    def __init__(self) -> None:
        self.silent: set[str] = set()

    async def around(self, seam: str, call: Callable[[], Awaitable[T]]) -> T:
        """Waits for ever where it is silent."""
        if seam in self.silent:
            await asyncio.get_running_loop().create_future()
        return await call()


def consumer(kinesis: FakeKinesis, store: MemoryStore) -> Consumer:
    """A member of the group."""
    adapter = FakeAdapter(
        "s",
        group="g",
        lease_duration=LEASE,
        handover_timeout=HANDOVER,
        make_service=lambda: FakeService(kinesis, "s"),
    )
    return Consumer(adapter, store=store, clock=kinesis.clock)


async def holds(member: Consumer, shards: int) -> None:
    """Waits until it has so many."""
    while len(member.stats().partitions) != shards:
        await asyncio.sleep(0.1)


def test_store_silent_during_a_handover_closing_is_bounded() -> None:
    """The release of a shard that was handed over is waited for no longer than the lease lasts."""

    async def main(simulation: Simulation) -> float:
        kinesis = FakeKinesis(simulation.clock)
        kinesis.create_stream("s", 2)
        store, seam = MemoryStore(), SilentStore()
        async with consumer(kinesis, store.handle(faults=seam)) as first:
            await holds(first, 2)
            seam.silent.add("lease_write")
            async with consumer(kinesis, store.handle()):
                await holds(first, 1)
                started = simulation.clock.monotonic()
                await first.aclose()
                return simulation.clock.monotonic() - started

    assert simulate(main, time_limit=1000) <= HANDOVER + 3 * LEASE
