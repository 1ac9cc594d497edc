"""What the cases about leases share: members of one group, each with a store and a clock."""

from __future__ import annotations

from collections.abc import AsyncIterator
from itertools import count
from typing import Any, ClassVar

import pytest
import pytest_asyncio

from consumer_sdk.abc import CheckpointStore, Leases
from consumer_sdk.leases.balance import moves
from consumer_sdk.records import Assignment, Partition
from consumer_sdk.records.leases import Lease
from consumer_sdk.testing.conformance.stores.case import Ability, StoreHarness

__all__ = ["DURATION", "HANDOVER", "STEP", "HandClock", "Joiner", "LeaseCase"]

DURATION, HANDOVER = 10.0, 30.0

STEP = 2.5
"""Seconds between two renewals: less than a third of the duration, and exact in binary."""

SKEW = 3600.0


class HandClock:
    """A clock that is moved by hand."""

    def __init__(self, now: float) -> None:
        self.now = now

    def monotonic(self) -> float:
        """Where it was moved to."""
        return self.now

    def wall(self) -> float:
        """For people alone: clocks of hosts differ, and go back."""
        return 2e9 - self.now


class Joiner:
    """Makes members of one group, as processes on different hosts would be.

    Attributes:
        clocks: of each member; they differ by hours.
        stores: of each member.
    """

    def __init__(self, harness: StoreHarness) -> None:
        self._harness = harness
        self._skews = count()
        self.clocks: dict[Leases, HandClock] = {}
        self.stores: dict[Leases, CheckpointStore] = {}

    async def __call__(
        self, *, group: str = "g", stream: str = "s", renews: bool = True, **shares: Any
    ) -> Leases:
        """A new member, which has renewed once; ``most=`` and ``weight=`` are its own."""
        store, clock = self._harness.make_store(), HandClock(SKEW * next(self._skews))
        await store.open()
        leases = store.leases(
            group, stream, duration=DURATION, handover=HANDOVER, clock=clock, **shares
        )
        assert leases is not None
        self.clocks[leases], self.stores[leases] = clock, store
        if renews:
            await leases.renew()
        return leases

    def sleep(self, seconds: float) -> None:
        """Time passes for all."""
        for clock in self.clocks.values():
            clock.now += seconds

    async def aclose(self) -> None:
        """Ends all."""
        for leases, store in self.stores.items():
            await leases.aclose()
            await store.aclose()


class LeaseCase:
    """Gives the cases a way to `join`."""

    pytestmark = pytest.mark.asyncio

    parents: ClassVar[dict[str, tuple[str, ...]]] = {"a": (), "b": (), "c": ()}

    @pytest.fixture(autouse=True)
    def _place(self, harness: StoreHarness) -> None:
        self.place = harness

    @pytest_asyncio.fixture
    async def join(self, harness: StoreHarness) -> AsyncIterator[Joiner]:
        """Makes members, and ends them after the case."""
        joiner = Joiner(harness)
        yield joiner
        await joiner.aclose()

    def needs(self, ability: Ability) -> None:
        """Skips the case where the harness cannot do what it needs."""
        if ability not in self.place.abilities:
            pytest.skip(f"the harness has no way to {ability}")

    async def lease(self, leases: Leases, partition: str = "a") -> Lease:
        """What is stored of a partition."""
        return (await leases.view()).leases[partition]

    async def taken(self, leases: Leases, partition: str = "a") -> int:
        """Takes a partition from whoever has it; returns the fence."""
        seen = await self.lease(leases, partition)
        return (await leases.take({partition: seen.fence}))[partition]

    async def watch(self, join: Joiner, observer: Leases, *others: Leases) -> None:
        """Time passes until silent members are dead for the observer; ``others`` renew."""
        for _ in range(6):
            join.sleep(STEP)
            for each in (observer, *others):
                await each.renew()
            await observer.view()

    async def step(self, leases: Leases) -> bool:
        """Does what a member is to do, draining at once; whether there was something."""
        await leases.renew()
        view = await leases.view()
        todo = moves(view)
        await leases.take(todo.take)
        await leases.unwant(todo.unwant)
        await leases.want(todo.want)
        await leases.release({p: view.leases[p].fence for p in todo.hand_over})
        return bool(todo.take or todo.want or todo.hand_over or todo.unwant)

    async def settle(self, *members: Leases) -> None:
        """Lets members act in turn until nothing moves any more."""
        for _ in range(20):
            if not any([await self.step(each) for each in members]):
                return
        raise AssertionError("partitions still change hands")

    async def claims(self, join: Joiner, leases: Leases, fence: int) -> Assignment | None:
        """Claims the checkpoint of partition a under a lease; None where that is refused."""
        assignment = Assignment(Partition("s", "a"), 1, fence)
        text = (await join.stores[leases].claim("g", [assignment]))[assignment]
        return assignment if text is None or isinstance(text, str) else None
