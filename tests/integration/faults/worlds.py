"""Each broker as a campaign needs it: a producer that never stops, members by URL, and what is stored."""

from __future__ import annotations

import asyncio
import os
import sys
import time
import uuid
import zlib
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import quote

import pulsar
from aiokafka import AIOKafkaProducer

from consumer_sdk.abc import CheckpointStore
from consumer_sdk.adapters.kafka.commits.metadata import read_metadata
from consumer_sdk.checkpoints.json import decode_checkpoint
from consumer_sdk.checkpoints.positions import POSITION_READERS
from consumer_sdk.records import Checkpoint, Partition
from consumer_sdk.testing.servers import KafkaEndpoint, KinesisEndpoint, PulsarEndpoint
from tests.adapters.kafka.consumer_groups import set_session
from tests.adapters.kafka.harness import KafkaHarness
from tests.integration.faults.ledger import Ledger
from tests.integration.faults.member import SESSION, store_at
from tests.integration.process_report import report

__all__ = [
    "CLASSIC",
    "CONSUMER",
    "COOPERATIVE",
    "KafkaWorld",
    "KinesisWorld",
    "Member",
    "PulsarWorld",
    "Usage",
    "World",
]

ROOT = Path(__file__).parents[3]
KEYS = 53
PADDING = "." * 400
TICK = 0.05
"""Seconds between two batches of the producer."""
PATIENCE = 600.0
"""Seconds until something that has to happen counts as missing."""
TICKS = os.sysconf("SC_CLK_TCK")
CLASSIC = f"session_timeout={SESSION}&heartbeat_interval=0.5"
COOPERATIVE = f"{CLASSIC}&partition_assignment_strategy=cooperative-sticky"
CONSUMER = "protocol=consumer"
"""How a group of Kafka's shares its partitions out, as options of a URL."""


class Usage:
    """What a process has taken so far: processor seconds, the most memory in MB, open files."""

    def __init__(self, pid: int) -> None:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        self.seconds = (int(fields[11]) + int(fields[12])) / TICKS
        status = dict(
            line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines()
        )
        self.memory = int(status["VmHWM"].split()[0]) / 1024
        self.files = len(os.listdir(f"/proc/{pid}/fd"))  # noqa: PTH208 - numbers


class Member:
    """A process of `tests.integration.faults.member`."""

    def __init__(self, process: asyncio.subprocess.Process, log: Path) -> None:
        self.process = process
        self.log = log

    @property
    def pid(self) -> int:
        """The process."""
        return self.process.pid

    def check(self) -> None:
        """It has not ended by itself."""
        if (status := self.process.returncode) is not None:
            said = self.log.read_text()[-3000:]
            raise AssertionError(f"a member ended by itself with status {status}: {said}")

    def signal(self, number: int) -> None:
        """Sends a signal."""
        os.kill(self.pid, number)

    async def kill(self) -> None:
        """SIGKILL, and waits for the end."""
        if self.process.returncode is None:
            self.process.kill()
            await self.process.wait()


class World(ABC):
    """One topic and one group.

    Args:
        folder: for the ledger, the members' logs, and a store's file.
        store: ``sqlite`` for a file, the URL of a store, or "".

    Attributes:
        ledger: what was produced and handled.
        members: those that were started.
        keys: how many different ones the records have.
        most_waiting: records that wait to be handled; with so many none is produced.
        sends: when `producing` has sent records, and how many seconds that took.
    """

    broker: ClassVar[str]

    def __init__(self, folder: Path, store: str = "") -> None:
        self.name = f"campaign-{uuid.uuid4().hex[:12]}"
        self.folder = folder
        self.store = f"sqlite://{folder / 'checkpoints.db'}" if store == "sqlite" else store
        self.ledger = Ledger(folder / "lines")
        self.members: list[Member] = []
        self.keys = KEYS
        self.most_waiting = sys.maxsize
        self._numbers = 0
        self.sends: list[tuple[float, float]] = []

    # -- what each broker does in its own way ---------------------------------------------------

    @abstractmethod
    async def create(self) -> None:
        """Makes the topic."""

    @abstractmethod
    def url(self) -> str:
        """The adapter's, for members."""

    @abstractmethod
    def _sending(self) -> Any:
        """A context manager of a function that sends records and returns the numbers that were taken."""

    async def bury(self) -> None:  # noqa: B027 - where the dead have no session
        """Nobody has to wait for the sessions of the dead."""

    async def until_acked(self) -> None:  # noqa: B027 - where the broker does not tell
        """The broker has no record left for the group."""

    async def settled(self) -> Mapping[str, Checkpoint]:
        """What is stored, by partition; empty where only the broker knows."""
        return await self._of_store() if self.store else {}

    # -- producing ------------------------------------------------------------------------------

    @asynccontextmanager
    async def producing(self, rate: int) -> AsyncIterator[None]:
        """So many records a second until the end of the block, which ends if they cannot be sent."""
        ends = asyncio.Event()
        async with asyncio.TaskGroup() as group:
            group.create_task(self._produce(rate, ends))
            try:
                yield
            finally:
                ends.set()

    async def _produce(self, rate: int, ends: asyncio.Event) -> None:
        async with self._sending() as send:
            began, first = time.monotonic(), self._numbers
            while not ends.is_set():
                # What a slow moment has left out is made up for.
                due = first + int((time.monotonic() - began) * rate) - self._numbers
                waiting = len(self.ledger.produced) - len(self.ledger.done)
                due = min(due, self.most_waiting - waiting, 2_000)
                if due > 0:
                    numbers = range(self._numbers, self._numbers + due)
                    self._numbers = numbers.stop
                    rows = [
                        (f"k{n % self.keys}", f"{n} {time.time():.4f} {PADDING}".encode())
                        for n in numbers
                    ]
                    at = time.time()
                    await send(rows)
                    self.sends.append((at, time.time() - at))
                    self.ledger.produced.update(numbers)
                await asyncio.sleep(TICK)

    async def burst(self, count: int, size: int) -> None:
        """Large records, in the place of what `producing` does."""
        async with self._sending() as send:
            numbers = range(self._numbers, self._numbers + count)
            self._numbers = numbers.stop
            padding = "." * size
            for n in numbers:
                await send([(f"k{n % self.keys}", f"{n} {time.time():.4f} {padding}".encode())])
            self.ledger.produced.update(numbers)

    # -- members --------------------------------------------------------------------------------

    async def join(
        self, *before: str, clock: str = "", program: str = "tests.integration.faults.member"
    ) -> Member:
        """Starts a member.

        Args:
            before: a command that becomes the member's.
            clock: a file; see `member.WrongClock`.
            program: the module that runs.
        """
        log = self.folder / f"member-{len(self.members)}.log"
        command = [*before, sys.executable, "-m", program]
        command += [str(self.ledger.file), self.url(), self.store, clock]
        environment = os.environ | {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test"}
        with log.open("wb") as out:
            process = await asyncio.create_subprocess_exec(
                *command, cwd=ROOT, stdout=out, stderr=out, env=environment
            )
        self.members.append(Member(process, log))
        return self.members[-1]

    async def until(self, is_so: Callable[[], bool], what: str, *alive: Member) -> None:
        """Reads the ledger until something is so."""
        try:
            async with asyncio.timeout(PATIENCE):
                while True:
                    self.ledger.read()
                    if is_so():
                        return
                    for member in alive:
                        member.check()
                    await asyncio.sleep(0.02)
        except TimeoutError:
            lost = sorted(self.ledger.lost)
            said = [await report(m.pid) for m in alive] + [m.log.read_text()[-2000:] for m in alive]
            raise AssertionError(
                f"never: {what}; {len(lost)} records are missing, {lost[:20]}; {said}"
            ) from None

    async def until_all(self, *alive: Member) -> None:
        """Reads until each record was handled."""
        await self.until(lambda: not self.ledger.lost, "all records were handled", *alive)

    @asynccontextmanager
    async def members_gone(self) -> AsyncIterator[None]:
        """All processes are gone at the end of the block."""
        try:
            yield
        finally:
            for member in self.members:
                await member.kill()

    # -- what is stored -------------------------------------------------------------------------

    async def _of_store(self) -> Mapping[str, Checkpoint]:
        store: CheckpointStore = store_at(self.store)
        await store.open()
        try:
            partitions = await store.list(self.group)
            texts = await store.peek(self.group, partitions)
        finally:
            await store.aclose()
        return {p.id: self._decoded(p, text) for p, text in texts.items() if text is not None}

    def _decoded(self, partition: Partition, text: str) -> Checkpoint:
        return decode_checkpoint(
            text,
            broker=self.broker,
            partition=partition,
            identity=None,
            decode_position=POSITION_READERS[self.broker],
        )

    @property
    def group(self) -> str:
        """Whose checkpoints they are."""
        return f"g-{self.name}"


class KafkaWorld(World):
    """A topic of three partitions.

    Args:
        server: where it is.
        address: where members connect to; the server's own by default.
        options: of the adapter's URL.
    """

    broker = "kafka"
    PARTITIONS = 3

    def __init__(
        self,
        server: KafkaEndpoint,
        folder: Path,
        store: str = "",
        address: str | None = None,
        options: str = CLASSIC,
    ) -> None:
        super().__init__(folder, store)
        self._server = server
        self._address = address or server.bootstrap_servers
        self._options = options

    async def create(self) -> None:
        """Makes it."""
        await self._server.create_topic(self.name, partitions=self.PARTITIONS)
        async with KafkaHarness(self._server.bootstrap_servers) as kafka:
            if self._options == CONSUMER:
                await set_session(kafka.admin, self.group, SESSION)

    def url(self) -> str:
        """By group."""
        return f"kafka://{self._address}/{self.name}?group={self.group}&{self._options}"

    @asynccontextmanager
    async def _sending(self) -> AsyncIterator[Any]:
        async with AIOKafkaProducer(
            bootstrap_servers=self._server.bootstrap_servers,
            enable_idempotence=True,
            request_timeout_ms=300_000,
        ) as producer:

            async def send(rows: list[tuple[str, bytes]]) -> None:
                sends = [await producer.send(self.name, v, key=k.encode()) for k, v in rows]
                await asyncio.gather(*sends)

            yield send

    async def bury(self) -> None:
        """By leaving in their names."""
        async with KafkaHarness(self._server.bootstrap_servers) as kafka:
            await kafka.end_sessions(self.group)

    async def settled(self) -> Mapping[str, Checkpoint]:
        """The group's commits, where there is no store."""
        if self.store:
            return await super().settled()
        async with KafkaHarness(self._server.bootstrap_servers) as kafka:
            commits = await kafka.admin.list_consumer_group_offsets(self.group)
        found = {}
        for tp, commit in commits.items():
            partition = Partition(self.name, str(tp.partition))
            committed, _ = read_metadata(
                commit.metadata, commit.offset, group=self.group, partition=partition, identity=None
            )
            found[partition.id] = committed.checkpoint
        return found


class KinesisWorld(World):
    """A stream of four shards; leases are where checkpoints are.

    Args:
        server: a kinesalite: kinesis-local takes longer for each record that its stream has, seconds with 30 000.
        folder: for the ledger, the members' logs, and a store's file.
        store: ``sqlite`` for a file, or the URL of a store.
        address: where members connect to; the server's own by default.
    """

    broker = "kinesis"
    SHARDS = 4

    def __init__(
        self,
        server: KinesisEndpoint,
        folder: Path,
        store: str = "sqlite",
        address: str | None = None,
    ) -> None:
        super().__init__(folder, store)
        self._server = server
        self._address = f"http://{address}" if address else server.endpoint_url

    async def create(self) -> None:
        """Makes it."""
        await self._server.create_stream(self.name, self.SHARDS)

    def url(self) -> str:
        """By group."""
        return (
            f"kinesis://{self._server.region}/{self.name}?group={self.group}&lease_duration={SESSION}"
            f"&poll_interval=0.3&endpoint_url={quote(self._address, safe='')}"
        )

    @asynccontextmanager
    async def _sending(self) -> AsyncIterator[Any]:
        async def send(rows: list[tuple[str, bytes]]) -> None:
            # Several at a time, each of which has all records of its keys, in their order.
            parts: list[list[tuple[str, bytes]]] = [[] for _ in range(self.SHARDS)]
            for key, value in rows:
                parts[zlib.crc32(key.encode()) % self.SHARDS].append((key, value))
            await asyncio.gather(*(self._server.put(self.name, part) for part in parts if part))

        yield send


class PulsarWorld(World):
    """A topic and a subscription.

    Args:
        kind: of the subscription.
        address: where members connect to; the server's own by default.
    """

    broker = "pulsar"

    def __init__(
        self,
        server: PulsarEndpoint,
        folder: Path,
        kind: str,
        store: str = "",
        address: str | None = None,
    ) -> None:
        super().__init__(folder, store)
        self.kind = kind
        self._server = server
        self._address = address or server.service_url.removeprefix("pulsar://")

    @property
    def topic(self) -> str:
        """Its whole name."""
        return f"persistent://public/default/{self.name}"

    async def create(self) -> None:
        """Makes both."""
        await self._server.create_topic(self.topic)
        await self._server.create_subscription(self.topic, self.group)

    def url(self) -> str:
        """By subscription."""
        return (
            f"pulsar://{self._address}/public/default/{self.name}?subscription={self.group}"
            f"&type={self.kind}&operation_timeout=10&admin_url={quote(self._server.admin_url, safe='')}"
        )

    @asynccontextmanager
    async def _sending(self) -> AsyncIterator[Any]:
        logger = pulsar.ConsoleLogger(pulsar.LoggerLevel.Error)
        client = pulsar.Client(self._server.service_url, logger=logger)
        try:
            producer = await asyncio.to_thread(
                client.create_producer,
                self.topic,
                block_if_queue_full=True,
                send_timeout_millis=0,
                batching_enabled=True,
                batching_type=pulsar.BatchingType.KeyBased,
            )

            async def send(rows: list[tuple[str, bytes]]) -> None:
                await asyncio.to_thread(_send_all, producer, rows)

            yield send
        finally:
            await asyncio.to_thread(client.close)

    async def until_acked(self) -> None:
        """By the subscription's backlog."""
        async with asyncio.timeout(PATIENCE):
            while await self._server.backlog(self.topic, self.group):
                await asyncio.sleep(0.2)


def _send_all(producer: Any, rows: list[tuple[str, bytes]]) -> None:
    failed: list[Any] = []

    def sent(result: Any, _: Any) -> None:
        if result.name != "Ok":
            failed.append(result)

    for key, value in rows:
        producer.send_async(value, sent, partition_key=key)
    producer.flush()
    assert not failed, failed
