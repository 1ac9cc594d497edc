"""Everything around the consumers of one seed, and the course of events."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable

from consumer_sdk.adapters.memory import MemoryBroker
from consumer_sdk.adapters.memory.group import Commit
from consumer_sdk.records import Checkpoint, Message, Partition
from consumer_sdk.testing import Simulation
from consumer_sdk.trackers import decode_checkpoint
from tests.sim.fakes import SharedState
from tests.sim.ledger import Ledger
from tests.sim.plan import FAULTS_END, Life, Plan, Subscribing, make_plan
from tests.sim.process import GROUP, STREAM, Process
from tests.sim.records import BrokenPromiseError, number

QUIET_LIMIT = 300.0
"""Virtual seconds after the faults within which everything has to come to rest."""


class World:
    """One scenario.

    Args:
        simulation: time and chance.
        trace: called with a line for each event.
    """

    rebalance_timeout = 4.0
    session_timeout = 3.0

    def __init__(self, simulation: Simulation, trace: Callable[[str], None] | None) -> None:
        self.clock = simulation.clock
        self.chance = simulation.random
        self.plan: Plan = make_plan(self.chance)
        self._print = trace
        self.trace(f"{self.plan}")
        self.ledger = Ledger(self.clock.monotonic, self.trace if trace else None)
        self.shared = SharedState(self.ledger)
        self.broker = MemoryBroker(
            session_timeout=self.session_timeout,
            rebalance_timeout=self.rebalance_timeout,
            wall=self.clock.wall,
        )
        self.ledger.has_ack_timeouts = self.plan.ack_timeout is not None
        self.broker.create_stream(STREAM, self.plan.partitions)
        self.ledger.has_store = self.plan.has_store
        self.ledger.limit = self.plan.retry.max_attempts
        if self.plan.subscribing is None:
            self.broker.group(GROUP).watchers.append(self._committed)
        else:
            self._subscribe(self.plan.subscribing)
        self.processes: list[Process] = []
        self._poison: set[tuple[Partition, int]] = set()
        self._random_of_processes = random.Random(self.chance.random())

    def _subscribe(self, subscribing: Subscribing) -> None:
        subscription = self.broker.subscribe(
            GROUP, subscribing.kind, keeps_indexes=subscribing.keeps_indexes
        )
        subscription.watchers.append(self.ledger.acked)
        self.ledger.subscription = subscription

    def trace(self, line: str) -> None:
        """Notes an event with its time."""
        if self._print:
            self._print(f"{self.clock.monotonic():9.4f} {line}")

    @property
    def is_quiet(self) -> bool:
        """The faults are over."""
        return self.clock.monotonic() >= FAULTS_END

    def is_poison(self, message: Message) -> bool:
        """It can never be processed."""
        return (message.partition, number(message.position)) in self._poison

    def _committed(self, partition: Partition, new: Commit) -> None:
        checkpoint = Checkpoint(resume=new.position)
        if new.text is not None:
            checkpoint = decode_checkpoint(
                new.text, broker="memory", partition=partition, identity=None, decode_position=int
            )
        self.ledger.commits(partition, checkpoint, new.owner[2])
        if not self.plan.has_store:
            self.ledger.durable[partition] = checkpoint

    # -- the course of events -----------------------------------------------------------

    async def live(self) -> int:
        """Runs the scenario; returns how many deliveries there were.

        Raises:
            BrokenPromiseError: a promise was broken.
        """
        story = asyncio.create_task(self._story(), name="story")
        broken = asyncio.create_task(self.ledger.broken.wait(), name="broken")
        await asyncio.wait({story, broken}, return_when=asyncio.FIRST_COMPLETED)
        broken.cancel()
        if self.ledger.violation is not None:
            raise self.ledger.violation
        await story
        return self.ledger.deliveries

    async def _story(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._produce())
            tasks.create_task(self._disturb())
            for number, lives in enumerate(self.plan.slots):
                tasks.create_task(self._slot(number, lives))
            await self._until(FAULTS_END)
        await self._begin_again()
        last = self._start("last", self._last_life(), is_new=self.plan.again == "from_start")
        await self._rest()
        await last.end()
        if last.consumer.stats().partitions:
            raise BrokenPromiseError("a closed consumer holds partitions")

    async def _until(self, moment: float) -> None:
        await asyncio.sleep(max(moment - self.clock.monotonic(), 0.0))

    async def _slot(self, number: int, lives: tuple[Life, ...]) -> None:
        for turn, life in enumerate(lives):
            await self._until(life.start)
            process = self._start(f"c{number}.{turn}", life)
            await self._until(min(life.end, FAULTS_END))
            await process.end()

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

    def _start(self, name: str, life: Life, *, is_new: bool = False) -> Process:
        chance = random.Random(self._random_of_processes.random())
        process = Process(self, name, life, chance, is_new=is_new)
        self.processes.append(process)
        return process

    def _last_life(self) -> Life:
        """The one that has to finish what the others left."""
        lives = [life for lives in self.plan.slots for life in lives]
        model = self.chance.choice(lives)
        return Life(
            FAULTS_END,
            FAULTS_END + QUIET_LIMIT,
            self.chance.choice(("stop", "cancel", "close")),
            model.style,
            self.chance.choice(self.plan.orderings),
            model.concurrency,
            model.batch,
            model.options,
        )

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
            self._poison.add((where, position))

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

    def _draw_living(self) -> Process | None:
        living = [p for p in self.processes if not p.task.done() and not p.faults.is_dead]
        return self.chance.choice(living) if living else None

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

    async def _rest(self) -> None:
        """Waits until all is processed and durable; then nothing may be in flight."""
        last = self.processes[-1]
        await last.has_opened.wait()
        if self.plan.truncates_at:
            await asyncio.sleep(1.0)
            self._truncate()
        if self.plan.subscribing is not None:
            await self._cut_while_working(last)
        try:
            async with asyncio.timeout(QUIET_LIMIT):
                while self.ledger.unfinished():
                    if last.task.done():
                        last.task.result()
                    await asyncio.sleep(0.5)
        except TimeoutError:
            raise BrokenPromiseError(self._unfinished(last)) from None
        try:
            async with asyncio.timeout(QUIET_LIMIT):
                while any((await last.consumer.lag()).values()) or self._is_busy(last):
                    await asyncio.sleep(0.5)
        except TimeoutError:
            stats = last.consumer.stats()
            raise BrokenPromiseError(f"nothing is left to do, and yet: {stats}") from None

    async def _cut_while_working(self, last: Process) -> None:
        """What was in flight then can only be acked by what the next connection brings."""
        for _ in range(3):
            await asyncio.sleep(self.chance.random())
            self.trace(f"{last.name} is disconnected")
            last.adapter.disconnect()

    @staticmethod
    def _is_busy(last: Process) -> bool:
        stats = last.consumer.stats()
        return bool(stats.in_flight or stats.in_flight_bytes or stats.retrying)

    def _unfinished(self, last: Process) -> str:
        return "; ".join(
            [
                f"not at rest {QUIET_LIMIT} s after the last fault",
                *self.ledger.unfinished()[:5],
                f"{last.consumer.stats()}",
                f"{last.consumer.explain()}",
            ]
        )
