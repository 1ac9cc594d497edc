"""Everything around the consumers of one seed, and the course of events."""

from __future__ import annotations

import asyncio
import itertools
import random
from collections.abc import Callable, Coroutine
from typing import Any

from consumer_sdk.adapters import assignment_book
from consumer_sdk.runtime import checkpoint_cleanup
from consumer_sdk.stores import MemoryStore
from consumer_sdk.testing import Simulation, SimulationLoop
from consumer_sdk.testing.kinesis import FakeKinesis
from tests.sim.kinesis.freezing import Freezer
from tests.sim.kinesis.ledger import STREAM, KinesisLedger
from tests.sim.kinesis.plan import BACKLOG_AGE, EPOCH, KinesisPlan, Reshard, make_plan
from tests.sim.kinesis.process import KinesisProcess
from tests.sim.kinesis.stream import Producing
from tests.sim.kinesis.watching import GROUP, StoreObserver
from tests.sim.ledger import Ledger
from tests.sim.plan import Life
from tests.sim.process import Process
from tests.sim.records import BrokenPromiseError
from tests.sim.scene import Scene

__all__ = ["KinesisScene"]

DELAYED = 12.0
"""Seconds by which lost and slow calls may put off a takeover: a few of the longest in a row."""

PAID = 6.0
"""Seconds after a read in which a shard may refuse whoever reads next: the longest answer is worth five."""

WEEK = 7 * 86_400.0
"""Retention; what is trimmed is trimmed on purpose."""


class KinesisScene(Scene):
    """One scenario on the fake Kinesis."""

    def __init__(self, simulation: Simulation, trace: Callable[[str], None] | None) -> None:
        self.drawn: KinesisPlan = make_plan(simulation.random)
        super().__init__(simulation, self.drawn, trace)
        plan = self.drawn
        assignment_book._epochs = itertools.count(1)  # they are in the trace, whatever ran before
        self.close_limit = plan.handover + 2 * plan.lease
        self.freezer = Freezer(asyncio.get_running_loop())
        self.store = MemoryStore()
        self.observer = StoreObserver(self.store, self.shards)
        self.kinesis = FakeKinesis(
            self.clock, limits=plan.limits, quirks=plan.quirks, retention=WEEK
        )
        self._producing = Producing(self.kinesis, self.shards, plan, self.chance, self.poison)
        self._is_over = False
        self._watches: set[asyncio.Task[None]] = set()
        if plan.start == "earliest":
            self.shards.begins(0.0)

    def _make_ledger(self, trace: Callable[[str], None] | None) -> Ledger:
        self.shards = KinesisLedger(self.clock.monotonic, trace)
        return self.shards

    def _make_process(
        self, name: str, life: Life, chance: random.Random, *, is_new: bool
    ) -> Process:
        assert not is_new
        return KinesisProcess(self, name, life, chance)

    def size_of(self, process: str) -> tuple[int | None, int]:
        """The ``max_shards`` and the ``weight`` of a process that starts."""
        sizes = self.drawn.sizes
        most, weight = sizes[len(self.processes) % len(sizes)]
        return (None if process == "last" else most), weight

    # -- the course of events -----------------------------------------------------------

    async def live(self) -> int:
        """As any scene; checkpoints are tidied up soon, since each process lives for some seconds alone."""
        before = checkpoint_cleanup.FIRST, checkpoint_cleanup.PACE
        checkpoint_cleanup.FIRST, checkpoint_cleanup.PACE = 1.0, 3.0
        try:
            return await super().live()
        finally:
            checkpoint_cleanup.FIRST, checkpoint_cleanup.PACE = before

    async def _story(self) -> None:
        await super()._story()
        self._is_over = True
        tasks = [process.task for process in self.processes]
        await asyncio.wait({*tasks, *self._watches})
        self._check_calls()
        ended = [process for process in self.processes if not process.task.cancelled()]
        errors = {p.name: p.task.exception() for p in ended}
        killed = {p.name for p in ended if p.faults.is_dead}  # nobody would have seen theirs
        for error in [e for name, e in errors.items() if e is not None and name not in killed]:
            raise error

    def _check_calls(self) -> None:
        refused = sum(process.service.refused for process in self._all())
        if self.drawn.is_calm and refused:
            raise BrokenPromiseError(f"a reader that is alone was refused {refused} calls")

    def _all(self) -> list[KinesisProcess]:
        return [process for process in self.processes if isinstance(process, KinesisProcess)]

    async def _produce(self) -> None:
        plan, left = self.drawn, self.drawn.records
        for number in range(plan.backlog):
            self._producing.put(1, EPOCH - BACKLOG_AGE * (1 - number / plan.backlog))
        while left:
            await asyncio.sleep(self.chance.expovariate(plan.records / plan.burst / 12))
            count = min(plan.burst, left)
            left -= count
            self._producing.put(count)

    async def _disturb(self) -> None:
        plan = self.drawn
        events: list[tuple[float, Callable[[], None]]] = [
            *((at, lambda kind=kind: self._reshard(kind)) for at, kind in plan.reshards_at),
            *((at, self._trim) for at in plan.trims_at),
            *((at, lambda n=times: self._refuse(n)) for at, times in plan.bursts_at),
            *((at, lambda s=seconds: self._freeze(s)) for at, seconds in plan.freezes_at),
            *((at, lambda s=seconds: self._pause(s)) for at, seconds in plan.pauses_at),
            *((at, lambda: self._watch(self._evict())) for at in plan.evicts_at),
        ]
        for moment, event in sorted(events, key=lambda pair: pair[0]):
            await self._until(moment)
            event()

    def _reshard(self, kind: Reshard) -> None:
        self.trace(self._producing.reshard(kind))

    def _trim(self) -> None:
        self.trace(self._producing.trim())

    def _refuse(self, times: int) -> None:
        self.trace(f"{times} reads of each process are refused")
        for process in self._all():
            process.faults.fail_next("records", times=times)

    def _freeze(self, seconds: float) -> None:
        running = [process for process in self._all() if process.is_at_work]
        if running:
            victim = self.chance.choice(running)
            self.trace(f"{victim.name} is stopped for {seconds} s")
            victim.freeze(seconds)

    async def _evict(self) -> None:
        """An operator takes what one member holds, which learns of it with its next renewal."""
        owners = sorted(self.shards.owners())
        if not owners:
            return
        operator, owner = self.store.leases(GROUP, STREAM), self.chance.choice(owners)
        leases = (await operator.view()).leases
        seen = {shard: lease.fence for shard, lease in leases.items() if lease.owner == owner}
        self.trace(f"{await operator.evict(seen)} are taken from {owner}")
        await self.observer.leased()

    def _pause(self, seconds: float) -> None:
        self.trace(f"all processes are stopped for {seconds} s")
        loop = asyncio.get_running_loop()
        assert isinstance(loop, SimulationLoop)
        loop.jump(seconds)
        for process in self._all():
            process.frozen += seconds
            process.awake_since = max(process.awake_since, self.clock.monotonic())

    async def _begin_again(self) -> None:
        """Whoever has just left may have used up the shards' limits, of which the next one cannot know."""
        if self.drawn.is_calm:
            await asyncio.sleep(PAID)

    # -- takeovers ------------------------------------------------------------------------

    def lost(self, process: str, member: str) -> None:
        """A process was killed: the shards that it had are another one's soon."""
        self._watch(self._takeover(process, member))

    def _watch(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._watches.add(task)

    async def _takeover(self, process: str, member: str) -> None:
        """Nobody who was there all the time may have left it alone for two leases and a renewal.

        Unless another member was given its share meanwhile that did not live to take it, or is on
        its way out: that begins anew then.
        """
        plan, since = self.drawn, self.clock.monotonic()
        limit = plan.lease * 7 / 3 + (0.5 if plan.is_on_time else DELAYED)
        while (left := self.shards.owned_by(member)) and not self._is_over:
            at_work = [p for p in self._all() if p.is_at_work]
            if at_work and not any(p.has_room for p in at_work):
                since = self.clock.monotonic()
            if at_work and self.clock.monotonic() - max(since, self._calm_since()) > limit:
                self.ledger.breaks(f"{left} of {process}, killed, are left alone since {since} s")
            await asyncio.sleep(0.5)

    def _calm_since(self) -> float:
        """Since when nobody has come or was killed or stopped; now if somebody is leaving."""
        if any(process.is_leaving for process in self._all()):
            return self.clock.monotonic()
        return max(p.awake_since for p in self._all())

    # -- the end ------------------------------------------------------------------------

    async def _disturb_last(self, last: Process) -> None:
        if self.drawn.trims != "none":
            await asyncio.sleep(1.0)
            self._trim()

    def _unfinished(self) -> list[str]:
        left = super()._unfinished()
        if left:
            return left
        held = {partition.id for partition in self.processes[-1].consumer.stats().partitions}
        shards = {shard.id for shard in self.kinesis.stream("stream").open_shards()}
        return [] if held == shards else [f"{held} are held, and {shards} are open"]
