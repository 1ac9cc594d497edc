"""A run of kills: the topic grows, things die at seeded moments, and in the end all is counted."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from pathlib import Path

from tests.integration.spark_kills.driver import Job
from tests.integration.spark_kills.figures import Figures
from tests.integration.spark_kills.processes import PATIENCE, Driver
from tests.integration.spark_kills.sink import Landed
from tests.integration.spark_kills.stage import Stage

__all__ = ["LOCAL", "LOCAL_CLUSTER", "Campaign", "seeded"]

LOCAL = "local[2,8]"
"""Two tasks at a time; each may fail, which it may not by default."""
LOCAL_CLUSTER = "local-cluster[2,1,1024]"
"""Executors in processes of their own."""

EARLY = 0.3
"""The share of a driver's kills that do not wait until it works again."""
START_SECONDS = 12.0
"""About as long as a driver starts."""
LOOK_SECONDS = 0.1
BATCH_SECONDS = {"begin": 0.2, "end": 0.02}
"""About as long as a batch is read, and as its log then takes."""


def seeded(seed: int, **counts: int) -> list[str]:
    """So many kills of each, in an order of the seed's."""
    targets = [target for target, count in counts.items() for _ in range(count)]
    random.Random(seed).shuffle(targets)
    return targets


class Campaign:
    """One run.

    Args:
        stage: what the query reads.
        folder: for everything that is written.
        master: Spark's.
        targets: what is killed, one after the other.
        seed: of the moments, and of which process it is.
    """

    def __init__(
        self, stage: Stage, folder: Path, master: str, targets: Sequence[str], seed: int
    ) -> None:
        job = Job(str(folder), stage.url, master, dict(stage.options))
        self._job = job
        self._stage = stage
        self._targets = targets
        self._chance = random.Random(seed)
        self._driver = Driver(job)
        self._landed = Landed(job.sink)
        self._is_over = asyncio.Event()
        self.figures = Figures()

    async def run(self) -> Figures:
        """Kills, lets the query finish, and counts."""
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._watch())
                growing = tasks.create_task(self._stage.grow(self._is_over))
                self._driver.start()
                await self._kill_all()
                self._is_over.set()
                await growing
                await self._until_done()
        finally:
            await self._driver.aclose()
            self._count()
        return self.figures

    async def _kill_all(self) -> None:
        goal, killed_at = 0, None
        for target in self._targets:
            if target == "driver" and self._chance.random() < EARLY:
                await asyncio.sleep(self._chance.random() * START_SECONDS)
            else:
                await self._recovered(goal, killed_at)
                await self._moment()
            goal, killed_at = self._stage.next, asyncio.get_running_loop().time()
            await self._kill(target)
        await self._recovered(goal, killed_at)

    async def _moment(self) -> None:
        """Any; or while a batch is read; or after its rows are in the sink and before Spark's log."""
        await asyncio.sleep(self._chance.random())
        if word := self._chance.choice(("", "begin", "end")):
            await self._until_said(word)
            await asyncio.sleep(self._chance.random() * BATCH_SECONDS[word])

    async def _until_said(self, word: str) -> None:
        known = len(self._job.events.lines())
        async with asyncio.timeout(PATIENCE):
            while not any(line.startswith(word) for line in self._job.events.lines()[known:]):
                self._driver.check()
                await asyncio.sleep(0.005)

    async def _kill(self, target: str) -> None:
        self.figures.kills[target] += 1
        self.figures.within_batch += self._job.events.is_within_batch
        if target == "driver":
            await self._driver.kill(self._chance)
            await self._look()  # nothing moves now
            self._driver.start()
        elif target in ("worker", "executor", "runner"):
            await self._driver.kill_part(target, self._chance)
        else:
            await self._stage.kill(target)

    async def _recovered(self, goal: int, since: float | None) -> None:
        """Waits for a record in the sink that was sent after the last kill."""
        async with asyncio.timeout(PATIENCE):
            while self._landed.newest < goal:
                self._driver.check()
                await asyncio.sleep(0.05)
                self._landed.look()
        if since is not None:
            self.figures.recoveries.append(asyncio.get_running_loop().time() - since)

    async def _until_done(self) -> None:
        """Waits until everything that was sent has arrived, and the group knows it."""
        async with asyncio.timeout(PATIENCE):
            while not self._stage.sent <= set(self._landed.rows):
                self._driver.check()
                await asyncio.sleep(0.2)
                self._landed.look()
            while (lag := await self._stage.lag()) > 0:
                self.figures.lag = lag
                self._driver.check()
                await asyncio.sleep(0.2)
        self.figures.lag = lag

    async def _watch(self) -> None:
        """Looks at the group until it has nothing left to do."""
        while self.figures.lag != 0:
            await self._look()
            await asyncio.sleep(LOOK_SECONDS)

    async def _look(self) -> None:
        before = self._stage.done(self._job.checkpoint)
        group = await self._stage.group()
        self.figures.looks.take(group, before, self._stage.done(self._job.checkpoint))

    def _count(self) -> None:
        """Everything is dead: what is there is all."""
        self._landed.look()
        self.figures.count_rows(self._stage.sent, self._landed.rows)
        self.figures.repeated = self._job.events.count("again")
        differing = [line for line in self._job.events.lines() if line.startswith("differs")]
        self.figures.differing = len(differing)
        self.figures.failed = self._job.events.count("failed")
        self.figures.orphans = self._driver.orphans
        print(self.figures, *differing, sep="\n")  # noqa: T201 - what a slow test was run for
