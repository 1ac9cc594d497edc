"""The course of events that every simulation has: processes come and go, then one finishes."""

from __future__ import annotations

import asyncio
import random
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

from consumer_sdk.records import Message, Partition
from consumer_sdk.testing import Simulation
from tests.sim.ledger import Ledger
from tests.sim.plan import Life, Plan
from tests.sim.process import Process
from tests.sim.records import BrokenPromiseError, number

__all__ = ["QUIET_LIMIT", "Scene"]

QUIET_LIMIT = 600.0
"""Virtual seconds after the faults within which everything has to come to rest: nine generations of shards,
each read by subscriptions with room for one record, take more than 300."""


class Scene(ABC):
    """Everything around the consumers of one seed.

    Args:
        simulation: time and chance.
        plan: what was decided before anything runs.
        trace: called with a line for each event.

    Attributes:
        close_limit: seconds that leaving the group may take.
    """

    close_limit: float

    def __init__(
        self, simulation: Simulation, plan: Plan, trace: Callable[[str], None] | None
    ) -> None:
        self.clock = simulation.clock
        self.chance = simulation.random
        self.plan = plan
        self._print = trace
        self.trace(f"{plan}")
        self.ledger = self._make_ledger(self.trace if trace else None)
        self.ledger.has_ack_timeouts = plan.ack_timeout is not None
        self.ledger.has_store = plan.has_store
        self.ledger.limit = plan.retry.max_attempts
        self.processes: list[Process] = []
        self.poison: set[tuple[Partition, int]] = set()
        self._random_of_processes = random.Random(self.chance.random())

    def _make_ledger(self, trace: Callable[[str], None] | None) -> Ledger:
        return Ledger(self.clock.monotonic, trace)

    def trace(self, line: str) -> None:
        """Notes an event with its time."""
        if self._print:
            self._print(f"{self.clock.monotonic():9.4f} {line}")

    @property
    def is_quiet(self) -> bool:
        """The faults are over."""
        return self.clock.monotonic() >= self.plan.faults_end

    def is_poison(self, message: Message) -> bool:
        """It can never be processed."""
        return (message.partition, number(message.position)) in self.poison

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
            for number_, lives in enumerate(self.plan.slots):
                tasks.create_task(self._slot(number_, lives))
            await self._until(self.plan.faults_end)
        await self._begin_again()
        last = self._start("last", self._last_life(), is_new=self.plan.again == "from_start")
        await self._rest()
        await last.end()
        if last.consumer.stats().partitions:
            raise BrokenPromiseError("a closed consumer holds partitions")

    async def _until(self, moment: float) -> None:
        await asyncio.sleep(max(moment - self.clock.monotonic(), 0.0))

    async def _slot(self, place: int, lives: tuple[Life, ...]) -> None:
        for turn, life in enumerate(lives):
            await self._until(life.start)
            process = self._start(f"c{place}.{turn}", life)
            await self._until(min(life.end, self.plan.faults_end))
            await process.end()

    def _start(self, name: str, life: Life, *, is_new: bool = False) -> Process:
        chance = random.Random(self._random_of_processes.random())
        process = self._make_process(name, life, chance, is_new=is_new)
        self.processes.append(process)
        return process

    @abstractmethod
    def _make_process(
        self, name: str, life: Life, chance: random.Random, *, is_new: bool
    ) -> Process:
        """One that runs."""

    def _last_life(self) -> Life:
        """The one that has to finish what the others left."""
        lives = [life for lives in self.plan.slots for life in lives]
        model = self.chance.choice(lives)
        return Life(
            self.plan.faults_end,
            self.plan.faults_end + QUIET_LIMIT,
            self.chance.choice(("stop", "cancel", "close")),
            model.style,
            self.chance.choice(self.plan.orderings),
            model.concurrency,
            model.batch,
            model.options,
        )

    @abstractmethod
    async def _produce(self) -> None:
        """Stores records, until there are as many as planned."""

    @abstractmethod
    async def _disturb(self) -> None:
        """Does what is planned to the broker and to processes."""

    async def _begin_again(self) -> None:  # noqa: B027 - most have nothing to do here
        """What happens when nobody is left, before the last one starts."""

    def _draw_living(self) -> Any:
        living = [p for p in self.processes if not p.task.done() and not p.faults.is_dead]
        return self.chance.choice(living) if living else None

    # -- the end ------------------------------------------------------------------------

    async def _rest(self) -> None:
        """Waits until all is processed and durable; then nothing may be in flight."""
        last = self.processes[-1]
        await last.has_opened.wait()
        await self._disturb_last(last)
        try:
            async with asyncio.timeout(QUIET_LIMIT):
                while self._unfinished():
                    if last.task.done():
                        last.task.result()
                    await asyncio.sleep(0.5)
        except TimeoutError:
            raise BrokenPromiseError(self._why_unfinished(last)) from None
        try:
            async with asyncio.timeout(QUIET_LIMIT):
                while any((await last.consumer.lag()).values()) or self._is_busy(last):
                    await asyncio.sleep(0.5)
        except TimeoutError:
            stats = last.consumer.stats()
            raise BrokenPromiseError(f"nothing is left to do, and yet: {stats}") from None

    async def _disturb_last(self, last: Process) -> None:  # noqa: B027 - the same
        """What the broker still does while the last process works."""

    def _unfinished(self) -> list[str]:
        return self.ledger.unfinished()

    @staticmethod
    def _is_busy(last: Process) -> bool:
        stats = last.consumer.stats()
        return bool(stats.in_flight or stats.in_flight_bytes or stats.retrying)

    def _why_unfinished(self, last: Process) -> str:
        return "; ".join(
            [
                f"not at rest {QUIET_LIMIT} s after the last fault",
                *self._unfinished()[:5],
                f"{last.consumer.stats()}",
                f"{last.consumer.explain()}",
            ]
        )
