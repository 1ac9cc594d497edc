"""A Pulsar topic of a test's own, consumers of it, and what waits for something to become so."""

from __future__ import annotations

import asyncio
import os
import sys
import time
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pulsar

from consumer_sdk import Consumer, Message, Ordering, Partition
from consumer_sdk.adapters import PulsarAdapter
from consumer_sdk.testing.servers import PulsarEndpoint

__all__ = ["GROUP", "Child", "Field", "Handled", "numbers", "running", "until", "until_true"]

GROUP = "team"
KEYS = 17
"""Of what `Field.load` produces."""

PATIENCE = 300.0
"""Seconds that anything may take, on a machine with much else to do."""


async def until(is_so: Callable[[], bool], patience: float = PATIENCE) -> None:
    """Waits for something to be so."""
    async with asyncio.timeout(patience):
        while not is_so():
            await asyncio.sleep(0.02)


async def until_true(ask: Callable[[], Awaitable[bool]], patience: float = PATIENCE) -> None:
    """Asks until it is so."""
    async with asyncio.timeout(patience):
        while not await ask():
            await asyncio.sleep(0.05)


def numbers(count: int, first: int = 0) -> list[bytes]:
    """Values that tell records apart."""
    return [b"%d" % n for n in range(first, first + count)]


class Field:
    """One topic, and its subscription ``team``.

    Args:
        partitions: 0 for a topic that is not partitioned.
    """

    def __init__(self, server: PulsarEndpoint, name: str, partitions: int = 0) -> None:
        self.server = server
        self.topic = f"persistent://public/default/{name}-{uuid.uuid4().hex}"
        self._partitions = partitions

    async def create(self) -> Field:
        """The topic, and the subscription, which keeps everything from the first record on."""
        await self.server.create_topic(self.topic, self._partitions)
        await self.server.create_subscription(self.topic, GROUP)
        return self

    def adapter(self, type: str, **options: Any) -> PulsarAdapter:  # noqa: A002 - Pulsar's word
        """An adapter for it."""
        given: dict[str, Any] = {"operation_timeout": 10, "admin_url": self.server.admin_url}
        return PulsarAdapter(
            self.topic,
            service_url=self.server.service_url,
            subscription=GROUP,
            type=type,  # type: ignore[arg-type]  # a parameter of tests
            **given | options,
        )

    async def produce(self, values: Iterable[bytes], **options: Any) -> None:
        """Produces these, one entry for each unless ``batch=True``."""
        await self.server.produce(self.topic, values, **options)

    async def load(self, count: int, first: int = 0) -> None:
        """Produces numbers in small batches, over whatever becomes of the connection."""
        await asyncio.to_thread(self._load, count, first)

    def _load(self, count: int, first: int) -> None:
        logger = pulsar.ConsoleLogger(pulsar.LoggerLevel.Error)
        client = pulsar.Client(self.server.service_url, logger=logger)
        failed: list[Any] = []

        def sent(result: Any, _: Any) -> None:
            if result.name != "Ok":
                failed.append(result)

        try:
            producer = client.create_producer(
                self.topic,
                batching_enabled=True,
                batching_max_messages=20,
                batching_max_publish_delay_ms=5,
                block_if_queue_full=True,
                send_timeout_millis=120_000,
            )
            for n in range(first, first + count):
                producer.send_async(b"%d" % n, sent, partition_key=f"k{n % KEYS}")
                time.sleep(0.0005)
            while True:  # a batch that was open when the connection went is sent when it is back
                try:
                    producer.flush()
                except pulsar.Timeout:
                    continue
                break
        finally:
            client.close()
        assert not failed

    async def until_acked(self) -> None:
        """Waits until the broker has no record of the subscription left."""

        async def is_empty() -> bool:
            return await self.server.backlog(self.topic, GROUP) == 0

        await until_true(is_empty)


class Handled:
    """A handler that keeps what it was called with.

    Args:
        fail: may raise for a message, by its value and how often it was handled before.
    """

    def __init__(self, fail: Callable[[bytes, int], None] = lambda _value, _before: None) -> None:
        self._fail = fail
        self.calls: list[bytes] = []
        self.places: list[tuple[Partition, Any]] = []
        self.attempts: list[tuple[bytes, int]] = []

    async def __call__(self, message: Message) -> None:
        """The handler."""
        value = message.value or b""
        before = self.calls.count(value)
        self.calls.append(value)
        self.places.append((message.partition, message.position))
        self.attempts.append((value, message.attempt))
        self._fail(value, before)

    def check_order(self) -> None:
        """The records of each key came in order; a producer that reconnects may send some again."""
        for key in range(KEYS):
            firsts = dict.fromkeys(int(v) for v in self.calls if int(v) % KEYS == key)
            assert list(firsts) == sorted(firsts)

    def has(self, values: Sequence[bytes]) -> bool:
        """Each of them was handled."""
        return set(values) <= set(self.calls)


@asynccontextmanager
async def running(
    consumer: Consumer, handler: Any, ordering: Ordering = Ordering.NONE, concurrency: int = 16
) -> AsyncIterator[asyncio.Task[None]]:
    """A consumer at work; what has ended it before its time is raised."""
    work = consumer.run(handler, concurrency=concurrency, ordering=ordering, handle_signals=False)
    task = asyncio.create_task(work)
    try:
        yield task
    finally:
        consumer.stop()
        await asyncio.wait_for(task, PATIENCE)


class Child:
    """A process of ``tests.integration.pulsar_consumer``, which appends what it does to a file."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self.process: asyncio.subprocess.Process | None = None

    async def start(self, field: Field, kind: str, *options: str) -> None:
        """Starts it; it may be started again when it is dead."""
        command = [sys.executable, "-m", "tests.integration.pulsar_consumer"]
        command += [field.server.service_url, field.server.admin_url, field.topic, kind]
        self.process = await asyncio.create_subprocess_exec(*command, str(self.file), *options)

    def lines(self) -> list[str]:
        """What it has said; a line that is being written is not there yet."""
        if not self.file.exists():
            return []
        return self.file.read_text().splitlines()

    async def until(self, is_so: Callable[[list[str]], bool]) -> None:
        """Waits for its lines to be so."""
        process = self.process
        assert process is not None

        def is_there() -> bool:
            assert process.returncode is None, "the consumer ended by itself"
            return is_so(self.lines())

        await until(is_there)

    @property
    def pid(self) -> int:
        """The process, which was started."""
        assert self.process is not None
        return self.process.pid

    def signal(self, number: int) -> None:
        """Sends a signal."""
        os.kill(self.pid, number)

    async def kill(self) -> None:
        """Kills it, if it lives."""
        if self.process is not None and self.process.returncode is None:
            self.process.kill()
            await self.process.wait()
