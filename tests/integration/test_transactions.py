"""``kill -9``, frozen members and killed brokers: who reads ``read_committed`` sees each output once."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import sys
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest
from aiokafka import AIOKafkaConsumer

from consumer_sdk import Consumer, Message
from consumer_sdk.adapters import KafkaAdapter, KafkaTransactions
from consumer_sdk.testing.servers import KafkaServer
from tests.adapters.kafka.consumer_groups import set_session
from tests.adapters.kafka.harness import KafkaHarness
from tests.adapters.kafka.world import numbered
from tests.integration.field import Field
from tests.integration.stopped_consumer import SESSION
from tests.integration.transaction_process import marks

pytestmark = pytest.mark.kafka

PARTITIONS = 3
PROTOCOLS = {
    "eager": "session_timeout=30",
    "cooperative": "session_timeout=30&partition_assignment_strategy=cooperative-sticky",
    "consumer": "protocol=consumer",
}
QUICK = {
    "eager": f"session_timeout={SESSION}&heartbeat_interval=0.2",
    "consumer": "protocol=consumer",
}
"""Options of a URL; the second ones lose a member that is frozen soon."""


class Ledger:
    """What ``read_committed`` shows of a topic, as it comes."""

    def __init__(self, values: list[str], expected: set[str]) -> None:
        self.values = values
        self._expected = expected

    @property
    def is_full(self) -> bool:
        """Nothing is missing."""
        return len(self.values) >= len(self._expected) and self._expected <= set(self.values)

    def check(self) -> None:
        """Each output is there once."""
        twice = [value for value, count in Counter(self.values).items() if count > 1]
        assert not twice, twice[:20]
        assert set(self.values) == self._expected


class Play:
    """A source, a target, and processes that echo one into the other."""

    def __init__(self, kafka: KafkaHarness) -> None:
        self.kafka = kafka
        self.source = self.target = ""
        self.records = 0

    @property
    def group(self) -> str:
        """Of this test's own."""
        return f"tx-{self.source}"

    async def build(self, records: int) -> None:
        """So many records in each partition."""
        self.source = await self.kafka.create_stream(PARTITIONS)
        self.target = await self.kafka.create_stream(2)
        await self.append(records)

    async def append(self, records: int) -> None:
        """More of them."""
        for partition in range(PARTITIONS):
            more = numbered(self.records, self.records + records)
            await self.kafka.append(self.source, more, partition)
        self.records += records

    @property
    def expected(self) -> set[str]:
        """All outputs."""
        places = [(p, n) for p in range(PARTITIONS) for n in range(self.records)]
        return {mark for place in places for mark in marks(*place)}

    @asynccontextmanager
    async def ledger(self) -> AsyncIterator[Ledger]:
        """Read while it is written."""
        values: list[str] = []
        reader = AIOKafkaConsumer(
            self.target,
            bootstrap_servers=self.kafka.servers,
            isolation_level="read_committed",
            auto_offset_reset="earliest",
            request_timeout_ms=5_000,
        )

        async def read() -> None:
            async for record in reader:
                values.append(record.value.decode())  # noqa: PERF401 - whoever looks sees it at once

        async with reader:
            task = asyncio.create_task(read())
            try:
                yield Ledger(values, self.expected)
            finally:
                task.cancel()
                await asyncio.wait({task})

    async def start(
        self, name: str, options: str, timeout: float = 60.0
    ) -> asyncio.subprocess.Process:
        """A process that echoes."""
        url = f"kafka://{self.kafka.servers}/{self.source}?group={self.group}&{options}"
        command = [sys.executable, "-m", "tests.integration.transaction_process", url, self.target]
        return await asyncio.create_subprocess_exec(*command, name, str(timeout))


async def until(happened: Callable[[], bool], *processes: asyncio.subprocess.Process) -> None:
    """Looks again and again."""
    while not happened():
        for process in processes:
            assert process.returncode is None, "the consumer ended by itself"
        await asyncio.sleep(0.02)


@pytest.mark.parametrize(
    "protocol, kills, records",
    [
        ("eager", 1, 600),
        *(
            pytest.param(each, kills, 10_000, marks=pytest.mark.campaign)
            for each, kills in [("eager", 40), ("cooperative", 20), ("consumer", 40)]
        ),
    ],
)
async def test_consumer_killed_many_times_writes_each_output_once(
    field: Field, protocol: str, kills: int, records: int
) -> None:
    """Killed at any moment, also inside of a transaction; the next one has the same transactional id."""
    play = Play(field.kafka)
    await play.build(records)
    chance = random.Random(23)
    async with play.ledger() as ledger:
        for run in range(kills + 1):
            process = await play.start("killed", PROTOCOLS[protocol])
            try:
                more = chance.randrange(1, 2 * len(play.expected) // (kills + 1))
                goal = min(len(ledger.values) + more, len(play.expected))
                await until(lambda goal=goal: len(ledger.values) >= goal, process)  # type: ignore[misc]  # a default
                if run == kills:
                    await until(lambda: ledger.is_full, process)
                await asyncio.sleep(chance.random() * 0.05)
            finally:
                process.kill()
                await process.wait()
                await play.kafka.end_sessions(play.group)
    ledger.check()


@pytest.mark.parametrize(
    "protocol, times",
    [
        ("consumer", 1),
        *(pytest.param(each, 15, marks=pytest.mark.campaign) for each in QUICK),
    ],
)
async def test_member_that_was_frozen_writes_nothing_afterwards(
    field: Field, protocol: str, times: int
) -> None:
    """SIGSTOP beyond the session, perhaps inside of a transaction; another one has all; SIGCONT."""
    play = Play(field.kafka)
    await play.build(400)
    await set_session(field.kafka.admin, play.group, SESSION)
    chance = random.Random(7)
    processes = [await play.start(f"frozen-{n}", QUICK[protocol], 4.0) for n in range(2)]
    try:
        for _ in range(times):
            async with play.ledger() as ledger:
                await until(lambda: len(ledger.values) > 50)
                frozen = processes[0]
                await asyncio.sleep(chance.random() * 0.1)
                os.kill(frozen.pid, signal.SIGSTOP)
                await until(lambda: ledger.is_full, processes[1])
                os.kill(frozen.pid, signal.SIGCONT)
            await play.append(200)
            async with play.ledger() as ledger:
                await until(lambda: ledger.is_full, processes[1])
            ledger.check()
            processes = [processes[1], await revived(play, frozen, QUICK[protocol])]
    finally:
        for process in processes:
            process.kill()
            await process.wait()


async def revived(
    play: Play, frozen: asyncio.subprocess.Process, options: str
) -> asyncio.subprocess.Process:
    """It goes on as a member; or its transaction had been aborted, so that it has ended, and is started again."""
    try:
        await asyncio.wait_for(frozen.wait(), 5.0)
    except TimeoutError:
        return frozen
    return await play.start(f"again-{frozen.pid}", options, 4.0)


@pytest.mark.campaign
async def test_broker_killed_five_times_leaves_each_output_once(
    own_kafka_server: KafkaServer,
) -> None:
    """The consumer goes on by itself: what was open is aborted, and what is not known is asked for."""
    async with KafkaHarness(own_kafka_server.bootstrap_servers) as kafka:
        play = Play(kafka)
        await play.build(6_000)

        async def handle(message: Message) -> None:
            for mark in marks(message.partition.id, message.position):
                message.send(play.target, mark.encode(), key=mark.encode())
            await asyncio.sleep(0.01)

        adapter = KafkaAdapter(
            play.source, bootstrap_servers=kafka.servers, group=play.group, session_timeout=30.0
        )
        consumer = Consumer(adapter, flush_interval=0.02)
        run = consumer.run(
            handle,
            concurrency=16,
            handle_signals=False,
            transactions=KafkaTransactions("restarts"),
        )
        running = asyncio.create_task(run)
        async with play.ledger() as ledger:
            for _ in range(5):
                target = min(len(ledger.values) + 2_000, len(play.expected))
                while len(ledger.values) < target:
                    assert not running.done(), running.result()
                    await asyncio.sleep(0.02)
                await own_kafka_server.kill()
                await own_kafka_server.restart()
            while not ledger.is_full:
                assert not running.done(), running.result()
                await asyncio.sleep(0.05)
        consumer.stop()
        await running
        ledger.check()
