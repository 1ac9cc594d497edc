"""Everything around the consumers of one seed, and the course of events."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable

from consumer_sdk.records import Checkpoint, Partition
from consumer_sdk.testing import Simulation
from consumer_sdk.testing.memory import MemoryBroker
from consumer_sdk.testing.memory.group import Commit
from consumer_sdk.trackers import decode_checkpoint
from tests.sim.fakes import SharedState
from tests.sim.memory_process import GROUP, STREAM, MemoryProcess
from tests.sim.plan import Life, Subscribing, make_plan
from tests.sim.process import Process
from tests.sim.scene import Scene


class World(Scene):
    """One scenario on the in-memory broker."""

    rebalance_timeout = 4.0
    session_timeout = 3.0
    close_limit = rebalance_timeout

    def __init__(self, simulation: Simulation, trace: Callable[[str], None] | None) -> None:
        super().__init__(simulation, make_plan(simulation.random), trace)
        self.shared = SharedState(self.ledger)
        self.broker = MemoryBroker(
            session_timeout=self.session_timeout,
            rebalance_timeout=self.rebalance_timeout,
            wall=self.clock.wall,
        )
        self.broker.create_stream(STREAM, self.plan.partitions)
        if self.plan.subscribing is None:
            self.broker.group(GROUP).watchers.append(self._committed)
        else:
            self._subscribe(self.plan.subscribing)

    def _subscribe(self, subscribing: Subscribing) -> None:
        subscription = self.broker.subscribe(
            GROUP, subscribing.kind, keeps_indexes=subscribing.keeps_indexes
        )
        subscription.watchers.append(self.ledger.acked)
        self.ledger.subscription = subscription

    def _committed(self, partition: Partition, new: Commit) -> None:
        checkpoint = Checkpoint(resume=new.position)
        if new.text is not None:
            checkpoint = decode_checkpoint(
                new.text, broker="memory", partition=partition, identity=None, decode_position=int
            )
        self.ledger.commits(partition, checkpoint, new.owner[2])
        if not self.plan.has_store:
            self.ledger.durable[partition] = checkpoint
            self.ledger.restorable(partition, checkpoint)

    def _make_process(
        self, name: str, life: Life, chance: random.Random, *, is_new: bool
    ) -> Process:
        return MemoryProcess(self, name, life, chance, is_new=is_new)

    # -- the course of events -----------------------------------------------------------

    async def _begin_again(self) -> None:
        """Nobody is left: an operator resets the group, or a new application starts anew."""
        if self.plan.again is None:
            return
        while self.broker.group(GROUP).members:  # the killed ones, until their session is over
            await asyncio.sleep(0.5)
        for partition in self.broker.partitions(STREAM):
            position = self._first_again(partition)
            if self.plan.again == "reset":
                self.broker.reset(GROUP, partition, position)
            self.ledger.begins_again(partition, position)

    def _first_again(self, partition: Partition) -> int:
        log = self.broker.log(partition)
        assert log is not None
        if self.plan.again == "reset":
            return self.chance.randint(log.start, log.end)
        is_later = self.broker.group(GROUP).is_discovered(partition)
        return log.end if self.plan.start == "latest" and not is_later else log.start

    async def _produce(self) -> None:
        plan, left = self.plan, self.plan.records
        while left:
            await asyncio.sleep(self.chance.expovariate(plan.records / plan.burst / 12))
            count = min(plan.burst, left)
            left -= count
            if plan.subscribing is not None and self.chance.random() < plan.subscribing.entries:
                self._append_entry(count)
            else:
                for _ in range(count):
                    self._append()

    def _append(self) -> None:
        key, partition = self._draw_key(), self._draw_partition()
        where, position = self.broker.append(STREAM, b"v", key=key, partition=partition)
        self._appended(where, position, key)

    def _append_entry(self, count: int) -> None:
        """One key, as Pulsar's key-based batches have it."""
        key, partition = self._draw_key(), self._draw_partition()
        records = [(key, b"v")] * count
        for position in self.broker.append_entry(STREAM, records, partition=partition):
            self._appended(Partition(STREAM, str(partition)), position, key)

    def _draw_key(self) -> bytes | None:
        chance, keys = self.chance, self.plan.keys
        drawn = chance.randrange(keys + 1)
        return (None, b"")[chance.randrange(2)] if drawn == keys else b"k%d" % drawn

    def _draw_partition(self) -> int:
        partition = self.chance.randrange(len(self.broker.partitions(STREAM)))
        if self.plan.has_gaps and self.chance.random() < 0.2:
            self.broker.skip(STREAM, partition, self.chance.choice((1, 2, 1000)))
        return partition

    def _appended(self, where: Partition, position: int, key: bytes | None) -> None:
        self.ledger.appended(where, position, key)
        if self.chance.random() < self.plan.poison:
            self.poison.add((where, position))

    async def _disturb(self) -> None:
        plan = self.plan
        events = [(moment, self._expire) for moment in plan.expires_at]
        events += [(moment, self._truncate) for moment in plan.truncates_at]
        if plan.subscribing is not None:
            events += [(moment, self._cut) for moment in plan.subscribing.cuts_at]
        if plan.grows_at is not None:
            events.append((plan.grows_at, self._grow))
        for moment, event in sorted(events, key=lambda pair: pair[0]):
            await self._until(moment)
            event()

    def _expire(self) -> None:
        if victim := self._draw_living():
            self.trace(f"{victim.name} loses its session")
            victim.adapter.expire()

    def _cut(self) -> None:
        if victim := self._draw_living():
            self.trace(f"{victim.name} is disconnected")
            victim.adapter.disconnect()

    def _truncate(self) -> None:
        """Retention passes consumers that are slow."""
        partition = self.chance.choice(self.broker.partitions(STREAM))
        log = self.broker.log(partition)
        assert log is not None
        before = self.chance.randint(log.start, log.end)
        self.trace(f"retention removes {partition} below {before}")
        self.broker.truncate(STREAM, int(partition.id), before)
        self.ledger.removed(partition, before)

    def _grow(self) -> None:
        total = len(self.broker.partitions(STREAM)) + 1
        self.trace(f"the stream grows to {total} partitions")
        self.broker.add_partitions(STREAM, total)

    # -- the end ------------------------------------------------------------------------

    async def _disturb_last(self, last: Process) -> None:
        if self.plan.truncates_at:
            await asyncio.sleep(1.0)
            self._truncate()
        if self.plan.subscribing is not None:
            await self._cut_while_working(last)

    async def _cut_while_working(self, last: Process) -> None:
        """What was in flight then can only be acked by what the next connection brings."""
        for _ in range(3):
            await asyncio.sleep(self.chance.random())
            self.trace(f"{last.name} is disconnected")
            last.adapter.disconnect()
