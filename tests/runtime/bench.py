"""A broker, a consumer on it, and what its handlers saw."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from consumer_sdk import Consumer, Message, Ordering, RetryPolicy
from consumer_sdk.abc import DeadLetters
from consumer_sdk.records import DeadLetter, Outcome
from consumer_sdk.testing import MemoryAdapter, MemoryBroker, Simulation, simulate

QUICK = RetryPolicy(max_attempts=3, initial=1.0, jitter=0.0)


class Letters(DeadLetters):
    """Keeps dead letters in a list; the first ``failures`` sends fail, or raise that."""

    def __init__(self, failures: int = 0, *, raises: Exception | None = None) -> None:
        self.kept: list[DeadLetter] = []
        self.failures = failures
        self.raises = raises

    async def open(self) -> None:
        """Nothing to open."""

    async def send(self, letters: Sequence[DeadLetter]) -> list[Outcome]:
        """Keeps them, or fails."""
        if self.failures:
            self.failures -= 1
            if self.raises is not None:
                raise self.raises
            return [Outcome.retry(OSError("down")) for _ in letters]
        self.kept += letters
        return [Outcome.durable() for _ in letters]

    async def aclose(self) -> None:
        """Nothing to close."""


class Bench:
    """One stream ``s`` with its broker, for one test."""

    def __init__(self, simulation: Simulation, partitions: int = 1) -> None:
        self.simulation = simulation
        self.broker = MemoryBroker(wall=simulation.clock.wall)
        self.broker.create_stream("s", partitions)
        self.seen: list[Message] = []
        self.letters = Letters()

    def append(self, *values: str) -> None:
        """Appends ``key=value`` or ``value`` records."""
        for text in values:
            key, equals, value = text.rpartition("=")
            self.broker.append("s", value.encode(), key=key.encode() if equals else None)

    def consumer(self, group: str | None = "g", **options: Any) -> Consumer:
        """A consumer of the stream."""
        options.setdefault("retry", QUICK)
        options.setdefault("dead_letters", self.letters)
        options.setdefault("clock", self.simulation.clock)
        return Consumer(MemoryAdapter(self.broker, "s", group=group), **options)

    async def run(
        self,
        consumer: Consumer,
        handler: Callable[[Message], Awaitable[None]] | None = None,
        *,
        seconds: float = 60.0,
        ordering: Ordering = Ordering.KEY,
        **options: Any,
    ) -> None:
        """Runs for so long, in virtual time, then stops."""
        asyncio.get_running_loop().call_later(seconds, consumer.stop)
        await consumer.run(handler or self.see, ordering=ordering, **options)

    async def see(self, message: Message) -> None:
        """A handler that only looks."""
        self.seen.append(message)

    @property
    def values(self) -> list[str]:
        """What was seen, in order."""
        return [(message.value or b"").decode() for message in self.seen]

    def committed(self) -> dict[str, int]:
        """The group's positions at the broker."""
        return {p.id: at for p, at in self.broker.committed("g", "s").items()}


def bench(test: Callable[[Bench], Awaitable[None]], *, partitions: int = 1, seed: int = 0) -> None:
    """Runs a test on virtual time."""

    async def main(simulation: Simulation) -> None:
        await test(Bench(simulation, partitions))

    simulate(main, seed=seed)
