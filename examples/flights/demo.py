"""The demo's course: start everything, kill the reader in the middle, wait, count.

The reader of Kafka is the consumer (feed), or the Spark job itself (pull).
"""

from __future__ import annotations

import argparse
import asyncio
import time
from collections.abc import Callable
from contextlib import AsyncExitStack
from pathlib import Path
from urllib.parse import urlsplit

from consumer_sdk.testing.servers import ExternalKafka, KafkaEndpoint, KafkaServer
from examples.flights.audit import Audit, audit
from examples.flights.children import Child
from examples.flights.journal import deliveries, redelivered
from examples.flights.ledger import Ledger
from examples.flights.progress import Gauge, Progress, number
from examples.flights.topics import Topics

LOOK_EVERY = 0.1  # seconds
GIVE_UP_AFTER = 240.0  # seconds in which nothing moves
MOST_AT_ONCE, BATCHES = 50_000, 5  # flights of a micro-batch, and how many there are at least


class Demo:
    """One run, with all its data in one folder.

    Attributes:
        ledger: the records that Spark saw.
    """

    def __init__(self, options: argparse.Namespace, folder: Path, progress: Progress) -> None:
        self.ledger = Ledger(folder / "ledger")
        self._is_pull: bool = options.source == "pull"
        self._kafka: str | None = options.kafka
        self._limit: int = options.limit
        self._kill_at: float = options.kill_at
        self._folder = folder
        self._progress = progress
        self._journals = [folder / f"deliveries-{life}.bin" for life in (1, 2)]
        self._stay: bool = options.stay
        self._page: str | None = None
        self._running: dict[str, Child] = {}

    async def run(self) -> Audit:
        """Runs the demo. However it ends, no process is left running."""
        async with AsyncExitStack() as stack:
            if not self._is_pull:
                await self._start_spark(stack, *self._feed())
            topics = await stack.enter_async_context(Topics(await self._start_kafka(stack)))
            await self._start_producer(stack, topics)
            await self._start_reader(stack, topics, life=1)
            if await self._watch(topics, until=self._is_time_to_kill):
                await self._kill_reader()
                await self._start_reader(stack, topics, life=2)
                await self._watch(topics, until=lambda: self._accounted(topics) >= self._limit)
            found = await self._audit(topics)
            await self._linger(found)
            return found

    async def _linger(self, found: Audit) -> None:
        """Keeps the consumer and its page up until Ctrl-C, if ``--stay`` asks for that."""
        if self._stay and self._page is not None:
            self._progress.say(f"{found}\n{self._page} stays until Ctrl-C")
            await asyncio.Event().wait()

    async def _start_spark(self, stack: AsyncExitStack, *source: str) -> None:
        self._progress.say("starting Spark")
        places = {name: self._folder / name for name in ("ledger", "checkpoint")}
        for path in places.values():
            path.mkdir(exist_ok=True)
        at_once = str(min(MOST_AT_ONCE, -(-self._limit // BATCHES)))
        folders = {name: str(path) for name, path in places.items()}
        await self._start(stack, "spark_job", *source, "--at-once", at_once, **folders)

    def _feed(self) -> list[str]:
        folder = self._folder / "feed"
        folder.mkdir()
        return ["--feed", str(folder)]

    def _topic(self, topics: Topics, journal: Path) -> list[str]:
        places = ["--kafka", topics.server, "--topic", topics.flights]
        return [*places, "--dead-letters", topics.dead_letters, "--journal", str(journal)]

    async def _start_kafka(self, stack: AsyncExitStack) -> KafkaEndpoint:
        if self._kafka:
            return ExternalKafka(self._kafka)
        self._progress.say("starting Kafka")
        return await stack.enter_async_context(KafkaServer(directory=self._folder / "kafka"))

    async def _start_producer(self, stack: AsyncExitStack, topics: Topics) -> None:
        limit = str(self._limit)
        await self._start(stack, "produce", kafka=topics.server, topic=topics.flights, limit=limit)

    async def _start_reader(self, stack: AsyncExitStack, topics: Topics, *, life: int) -> None:
        journal = self._journals[life - 1]
        if self._is_pull:
            await self._start_spark(stack, *self._topic(topics, journal))
            return
        await self._start(
            stack,
            "consume",
            kafka=topics.server,
            topic=topics.flights,
            folder=str(self._folder),
            journal=str(journal),
            **({} if self._page is None else {"page": urlsplit(self._page).netloc}),
        )

    async def _start(self, stack: AsyncExitStack, module: str, *given: str, **options: str) -> None:
        named = [text for name, value in options.items() for text in (f"--{name}", value)]
        log = self._folder / f"{module}.log"
        child = Child(f"examples.flights.{module}", *given, *named, log=log)
        self._running[module] = await stack.enter_async_context(child)

    async def _kill_reader(self) -> None:
        module, name = ("spark_job", "Spark") if self._is_pull else ("consume", "the consumer")
        await self._running.pop(module).kill()
        self._progress.say(f"{name} is killed (kill -9); another one takes over")

    def _is_time_to_kill(self) -> bool:
        share = deliveries(self._journals[0]) / self._limit
        return share > self._kill_at

    def _accounted(self, topics: Topics) -> int:
        return len(self.ledger.seen) + len(topics.dead)

    async def _watch(self, topics: Topics, until: Callable[[], bool]) -> bool:
        """Shows the progress until a condition holds; returns False if the progress stops before."""
        before, moved = None, time.monotonic()
        while not until():
            if time.monotonic() - moved > GIVE_UP_AFTER:
                self._progress.say(f"giving up: nothing has moved for {GIVE_UP_AFTER:.0f} seconds")
                return False
            await asyncio.sleep(LOOK_EVERY)
            for child in self._running.values():
                child.check()
            self.ledger.refresh()
            await topics.refresh()
            self._tell_page()
            self._show(topics)
            now = (self._produced, self._accounted(topics), self._delivered)
            if now != before:
                before, moved = now, time.monotonic()
        return True

    def _tell_page(self) -> None:
        """Prints the address of the consumer's page once, and again if the next consumer has another."""
        reader = self._running.get("consume")
        page = None if reader is None else reader.facts.get("page")
        if page is not None and page != self._page:
            self._page = page
            self._progress.say(f"watch the consumer live at {page}")

    @property
    def _produced(self) -> int:
        return int(self._running["produce"].facts.get("produced", 0))

    @property
    def _delivered(self) -> int:
        return sum(map(deliveries, self._journals))

    def _show(self, topics: Topics) -> None:
        seen, dead = number(len(self.ledger.seen)), number(len(topics.dead))
        gauges = [
            Gauge("produced", self._produced / self._limit, number(self._produced)),
            Gauge("delivered", self._delivered / self._limit, number(self._delivered)),
            Gauge("processed", self._accounted(topics) / self._limit, f"{seen} + {dead} dead"),
        ]
        self._progress.show(gauges, self.ledger.delays.table())

    async def _audit(self, topics: Topics) -> Audit:
        return audit(
            self._produced,
            await topics.ends(),
            self.ledger.seen,
            topics.dead,
            redelivered(self._journals),
        )
