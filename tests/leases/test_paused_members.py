"""Two processes share a lease; the owner is stopped until the other has taken it, and goes on."""

from __future__ import annotations

import asyncio
import random
import signal
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

import pytest

from tests.leases.member_child import DURATION, store_of

T = TypeVar("T")

ROOT = Path(__file__).parents[2]
RUNS = 20
PATIENCE = 300.0


@dataclass
class Child:
    """A process of `tests.leases.member_child`, and what it said."""

    process: Process
    said: list[tuple[str, int]] = field(default_factory=list)

    async def listen(self, news: asyncio.Event) -> None:
        """Hears it to its end."""
        assert self.process.stdout is not None
        while line := await self.process.stdout.readline():
            word, number = line.decode().split()
            self.said.append((word, int(number)))
            news.set()

    @property
    def fence(self) -> int:
        """The last one that it had; 0 when that is over."""
        words = [(word, n) for word, n in self.said if word in ("own", "lost", "fenced")]
        return words[-1][1] if words and words[-1][0] == "own" else 0

    def numbers(self, word: str) -> list[int]:
        """All that it said with this word."""
        return [n for said, n in self.said if said == word]


class Race:
    """Two children on one store."""

    def __init__(self) -> None:
        self._news = asyncio.Event()
        self._chance = random.Random(7)
        self.children: list[Child] = []

    async def run(self, *place: str) -> None:
        """Stops the owner again and again."""
        async with asyncio.TaskGroup() as group:
            for _ in range(2):
                child = Child(await start(*place))
                self.children.append(child)
                group.create_task(child.listen(self._news))
            try:
                for _ in range(RUNS):
                    await self._pause_owner()
            finally:
                for child in self.children:
                    assert child.process.stdin is not None
                    child.process.stdin.close()

    async def _pause_owner(self) -> None:
        fence = 0
        while not fence:  # a slow machine may lose it just now
            owner = await self._until(self._owner)
            await asyncio.sleep(self._chance.uniform(0, DURATION / 5))  # anywhere within a turn
            fence = owner.fence
        (other,) = (child for child in self.children if child is not owner)
        owner.process.send_signal(signal.SIGSTOP)
        await self._until(lambda: other.fence > fence and other.said[-1][0] == "durable", owner)
        owner.process.send_signal(signal.SIGCONT)
        await self._until(lambda: owner.fence != fence)

    def _owner(self) -> Child | None:
        child = max(self.children, key=lambda child: child.fence)
        return child if child.fence and child.said[-1][0] == "durable" else None

    async def _until(self, ask: Callable[[], T | None], stopped: Child | None = None) -> T:
        """Waits for an answer; a child that stands inside a transaction first ends that."""
        clock = asyncio.get_running_loop().time
        async with asyncio.timeout(PATIENCE):
            until = clock() + 5 * DURATION
            while not (answer := ask()):
                self._news.clear()
                with suppress(TimeoutError):
                    async with asyncio.timeout_at(until):
                        await self._news.wait()
                # Not after a silence: the other one may say again and again that it cannot write.
                if clock() >= until:
                    until = clock() + 5 * DURATION
                    if stopped is not None:
                        stopped.process.send_signal(signal.SIGCONT)
                        await asyncio.sleep(0.005)
                        stopped.process.send_signal(signal.SIGSTOP)
        return answer


async def start(*place: str) -> Process:
    """Another process."""
    module = ("-W", "error", "-m", "tests.leases.member_child")
    return await asyncio.create_subprocess_exec(
        sys.executable, *module, *place, cwd=ROOT, stdin=PIPE, stdout=PIPE
    )


async def check(*place: str) -> None:
    """Runs the race; no number was written twice, and the last one is stored.

    One whose answer came too late on a busy machine is stored, and said to be tried again.
    """
    race = Race()
    try:
        await race.run(*place)
    finally:
        for child in race.children:
            if child.process.returncode is None:
                child.process.kill()
            await child.process.wait()
    numbers = sorted(n for child in race.children for n in child.numbers("durable"))
    assert len(numbers) == len(set(numbers))
    tried = {n for child in race.children for n in child.numbers("retry")}
    assert {*range(1, numbers[-1])} <= {*numbers, *tried}
    store = store_of(*place)
    await store.open()
    texts = await store.peek("g", await store.list("g"))
    await store.aclose()
    (last,) = texts.values()
    assert last == str(numbers[-1]) or int(last or 0) in tried
    assert sum(len(child.numbers("fenced")) for child in race.children) > 0


@pytest.mark.campaign
async def test_stopped_owner_loses_its_lease_and_its_late_writes_are_refused(
    tmp_path: Path,
) -> None:
    """SIGSTOP until another process of the host has taken over, SIGCONT, 20 times."""
    await check("local", str(tmp_path / "state.db"))
