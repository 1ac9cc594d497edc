"""Owners that race for one partition, over a network that loses, delays and reorders."""

from __future__ import annotations

import asyncio
import random
from dataclasses import dataclass, field
from itertools import count

import pytest

from consumer_sdk.abc import StoreItem
from consumer_sdk.errors import StoreError
from consumer_sdk.records import Assignment, Outcome, OutcomeKind, Partition
from consumer_sdk.stores import ZooKeeperStore
from consumer_sdk.stores.zookeeper.tree import decode_znode
from consumer_sdk.testing.simulation import Simulation, simulate
from tests.stores.fake_zookeeper import FakeZooKeeper, store_on

OWNERS = 3
ROUNDS = 4
SAVES = 5
FIRST = Partition("orders", "0")


@dataclass
class Referee:
    """Sees every write that takes effect, and knows which of them may."""

    owner: str = ""
    number: int = 0
    writers: list[str] = field(default_factory=list)

    def applied(self, path: str, data: bytes) -> None:
        """A claim has a new writer; everything else comes from the one who claimed last."""
        stamp, text = decode_znode(data, path)
        number = int(text or 0)
        assert number >= self.number, f"the checkpoint moved back: {self.number} → {number}"
        if stamp.serial == 0:
            assert stamp.writer not in self.writers, "an old claim was applied again"
            assert number == self.number, "a claim changed the checkpoint"
            self.writers.append(stamp.writer)
            self.owner = stamp.writer
        assert stamp.writer == self.owner, "a stale owner has written"
        self.number = number


@dataclass
class Owner:
    """A process that takes the partition, counts on, is paused, and does not know it."""

    store: ZooKeeperStore
    chaos: random.Random
    referee: Referee
    epochs: count[int]

    async def run(self) -> None:
        """Claims and saves a few times."""
        for _ in range(ROUNDS):
            await asyncio.sleep(self.chaos.uniform(0, 3))
            await self.hold()

    async def hold(self) -> None:
        """From a claim to its loss, or until it has saved enough."""
        assignment, number = await self.claim()
        for _ in range(SAVES):
            if self.chaos.random() < 0.3:
                await asyncio.sleep(self.chaos.uniform(0, 4))  # SIGSTOP, SIGCONT
            number += 1
            if not await self.save(assignment, number):
                # It was told, and does not listen.
                assert not await self.save(assignment, number)
                return

    async def claim(self) -> tuple[Assignment, int]:
        """Tries until it is granted: without a fence the last one wins."""
        while True:
            assignment = Assignment(FIRST, next(self.epochs))
            try:
                text = (await self.store.claim("g", [assignment]))[assignment]
            except StoreError:
                continue
            assert not isinstance(text, Outcome)
            return assignment, int(text or 0)

    async def save(self, assignment: Assignment, number: int) -> bool:
        """Tries until it is durable or refused, cancelling some; whether it is durable."""
        while True:
            saving = asyncio.ensure_future(
                self.store.save("g", [StoreItem(assignment, str(number))])
            )
            if self.chaos.random() < 0.1:
                await asyncio.wait([saving], timeout=self.chaos.uniform(0, 0.1))
                saving.cancel()
            await asyncio.wait([saving])
            if saving.cancelled():
                continue
            (outcome,) = saving.result()
            if outcome.kind is OutcomeKind.DURABLE:
                assert self.referee.number >= number, "said to be durable, and is not stored"
                return True
            if outcome.kind is OutcomeKind.FENCED:
                mine = self.store._claims._held[assignment][1].writer
                assert mine != self.referee.owner, "fenced, and yet the owner"
                return False


async def race(simulation: Simulation) -> int:
    """A few owners, and then a calm in which the last claimer can write."""
    referee, server, chaos = Referee(), FakeZooKeeper(), simulation.random
    server.applied = referee.applied
    rate = chaos.choice((0.0, 0.1, 0.4))
    epochs = count(1)
    stores = [store_on(server, chaos, rate) for _ in range(OWNERS)]
    owners = [Owner(store, chaos, referee, epochs) for store in stores]
    async with asyncio.TaskGroup() as group:
        for owner in owners:
            group.create_task(owner.run())
    for store in stores:
        await store.aclose()
    calm = Owner(store_on(server), chaos, referee, epochs)
    assignment, number = await calm.claim()
    assert await calm.save(assignment, number + 1)
    await calm.store.aclose()
    assert referee.number == number + 1
    return len(referee.writers)


@pytest.mark.sim
@pytest.mark.parametrize(
    "seeds", [range(200), pytest.param(range(200, 2000), marks=pytest.mark.campaign)]
)
def test_stale_owner_never_writes(seeds: range) -> None:
    """Whatever is lost, late, repeated, paused or cancelled: the last claimer alone writes.

    No checkpoint moves back, what is DURABLE is stored, and every race ends.
    """
    claims = sum(simulate(race, seed=seed) for seed in seeds)
    assert claims > len(seeds) * OWNERS * ROUNDS
