"""A seeded life of a group that shares leases: processes that stop, die, join and leave."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Mapping
from typing import Any

from consumer_sdk.errors import TransientStoreError
from consumer_sdk.leases.balance import balance
from consumer_sdk.stores import MemoryStore
from consumer_sdk.testing import Simulation
from consumer_sdk.testing.faults import FaultRates, Faults
from tests.leases.ledger import GROUP, STREAM, Ledger
from tests.leases.member import DURATION, HANDOVER, Member

__all__ = ["World"]

QUIET = 30.0
"""Seconds after which nothing bad happens any more."""

NOTICING = 2 * DURATION
"""Seconds that a partition may be without an owner who lives, by members that look every third
of the duration."""

BALANCING = HANDOVER + 2 * DURATION
"""Seconds until those who do not let go are taken from."""

STEP = 0.5

READING = 90.0
"""Seconds until all is read, at most."""

EVENTS = ("cut", "join", "kill", "leave", "outage", "stubborn")
MOST = 5

SEAMS = ("claim", "save", "read_back", "lease_read", "lease_write", "lease_renew")


class World:
    """One simulation.

    Attributes:
        errors: what went wrong in a process.
        requests: what is on its way to the store.
        is_down: nobody reaches the store.
        is_gentle: nobody is stopped, and all clocks tick alike.
    """

    def __init__(self, simulation: Simulation) -> None:
        self._chance = chance = simulation.random
        self._loop = asyncio.get_running_loop()
        self.errors: list[BaseException] = []
        self.requests: set[asyncio.Task[Any]] = set()
        self.is_down = False
        self.is_gentle = chance.random() < 0.5
        # Few kinds of events go deeper than all of them.
        self._events = chance.sample(EVENTS, chance.randint(1, 4))
        self._events += [] if self.is_gentle else ["stop"] * 2
        # Drawn from a copy, so that lives without an operator are what they were before there was one.
        self._operator = random.Random()
        self._operator.setstate(chance.getstate())
        self._evicts = self._operator.random() < 1 / 3
        self.root = MemoryStore()
        self._parents = dict.fromkeys((f"old {n}" for n in range(chance.randint(1, 4))), ())
        self._children = self._reshard(list(self._parents))
        self._resharded_at = chance.uniform(0, QUIET)
        parents = {**self._parents, **self._children}
        sizes = {partition: chance.randint(0, 60) for partition in parents}
        self.ledger = Ledger(parents, sizes, self.is_gentle)
        self.ledger.processed = {partition: set() for partition in parents}
        self.members: list[Member] = []

    def _reshard(self, left: list[str]) -> dict[str, tuple[str, ...]]:
        """Splits and merges; some partitions stay as they are."""
        children: dict[str, tuple[str, ...]] = {}
        while left:
            parent, kind = left.pop(), self._chance.choice("smk")
            if kind == "s":
                children |= {f"{parent} low": (parent,), f"{parent} high": (parent,)}
            elif kind == "m" and left:
                children[f"{parent} merged"] = (parent, left.pop())
        return children

    def listed(self) -> Mapping[str, tuple[str, ...]]:
        """Children are listed when the stream was resharded."""
        is_resharded = self._loop.time() >= self._resharded_at
        return {**self._parents, **(self._children if is_resharded else {})}

    def is_closed(self, partition: str) -> bool:
        """It has children that are listed."""
        return any(partition in parents for parents in self.listed().values())

    def join(self) -> None:
        """Another process starts."""
        rate = self._chance.choice((0.0, 0.02, 0.1))
        rates = dict.fromkeys(SEAMS, FaultRates(before=rate, after=rate, delay=0.3, max_delay=0.5))
        rates["claim"] = FaultRates(before=rate, after=rate, delay=0.3, max_delay=2 * DURATION)
        faults = Faults(self._chance, rates, until=QUIET, error=_lost)
        drift = 0.0 if self.is_gentle else self._chance.uniform(-0.02, 0.02)
        self.members.append(Member(self, self._chance, faults, drift))

    async def live(self) -> Counter[str]:
        """Lives through everything; counts what happened."""
        for _ in range(self._chance.randint(2, 3)):
            self.join()
        while self._loop.time() < QUIET:
            await asyncio.sleep(self._chance.uniform(0, 4))
            await self._happen()
            if self._evicts and self._operator.random() < 1 / 2:
                await self._evict()
        self._calm_down()
        try:
            async with asyncio.timeout(READING):
                await self._see_all_read()
            await asyncio.sleep(BALANCING)
            await self._check_balance()
        finally:
            await asyncio.gather(*(member.kill() for member in self.members))
            await asyncio.gather(*self.requests, return_exceptions=True)
            for error in self.errors:
                raise error
        return self.ledger.counts

    async def _happen(self) -> None:
        owners = [member for member in self.members if member.tenures]
        member = self._chance.choice(owners or self.members)
        kind = self._chance.choice(self._events)
        seconds = self._chance.uniform(0, 4 * DURATION)
        if kind == "join" and len(self.members) < MOST:
            self.join()
        elif kind == "outage":
            self.is_down = True
            self._loop.call_later(seconds, self._mend)
        elif kind == "cut":
            member.is_cut = True
            self._loop.call_later(seconds, member.recover)
        elif kind == "stop":
            member.stop()
            self._loop.call_later(seconds, member.go_on)
        elif kind == "stubborn":
            member.is_stubborn = True
        elif kind in ("kill", "leave") and len(self.members) > 2:
            self.members.remove(member)
            await (member.leave() if kind == "leave" and member.is_running else member.kill())

    async def _evict(self) -> None:
        """An operator takes all leases from one member, whatever it is doing."""
        member = self._operator.choice(self.members)
        operator = self.root.leases(GROUP, STREAM)
        seen = {
            partition: lease.fence
            for partition, lease in (await operator.view()).leases.items()
            if lease.owner == member.leases.member
        }
        self.ledger.evicted.update(seen.values())
        self.ledger.counts["evicted"] += len(await operator.evict(seen))
        self.ledger.audit(self.root)

    def _mend(self) -> None:
        self.is_down = False

    def _calm_down(self) -> None:
        """Who does not hand over stays like that, and another one wants its share."""
        self._mend()
        self.join()
        for member in self.members:
            member.go_on()
            member.recover()

    async def _see_all_read(self) -> None:
        alone = Counter[str]()
        while not self.ledger.is_done(self.root):
            await asyncio.sleep(STEP)
            alive = {member.leases.member for member in self.members}
            leases = (await self.root.leases(GROUP, STREAM).view()).leases
            for partition in balance(alive, leases):
                alone[partition] += 1
                if leases[partition].owner in alive:
                    alone[partition] = 0
                assert alone[partition] * STEP <= NOTICING, f"{partition} has no owner"

    async def _check_balance(self) -> None:
        view = await self.root.leases(GROUP, STREAM).view()
        alive = {member.leases.member: member for member in self.members}
        targets = balance(alive.keys(), view.leases)
        owners = {p: view.leases[p].owner for p in targets}
        assert owners == targets, "not balanced, or with somebody who is dead"
        for partition, owner in targets.items():
            assert partition in alive[owner].tenures, f"{partition} is not read by its owner"


def _lost(seam: str) -> Exception:
    return TransientStoreError(f"{seam}: the line failed")
