"""The members of one group, each a process, write one feed that one query reads."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import uuid
from collections import defaultdict
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from aiokafka import AIOKafkaProducer

from consumer_sdk.spark_bridge.feed.reader import FeedStreamReader
from consumer_sdk.spark_bridge.feed.url import FeedUrl
from consumer_sdk.testing.servers import KafkaServer
from tests.spark_bridge.feeding import manifests

pytestmark = pytest.mark.kafka

PARTITIONS = 4
PATIENCE = 300.0


class Team:
    """A topic, a feed, and the processes of the group ``topic``.

    Attributes:
        sent: records in each partition.
    """

    def __init__(self, servers: str, directory: Path) -> None:
        self.servers = servers
        self.directory = directory
        self.topic = f"feed-group-{uuid.uuid4().hex[:8]}"
        self.sent = 0

    @asynccontextmanager
    async def member(self) -> AsyncIterator[asyncio.subprocess.Process]:
        """Runs one, and kills it (SIGKILL) in the end."""
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "tests.integration.feed_member",
            self.servers, self.topic, str(self.directory),
        )  # fmt: skip
        try:
            yield process
        finally:
            if process.returncode is None:
                process.kill()
            await process.wait()

    async def send(self, count: int) -> None:
        """So many more records for each partition."""
        async with AIOKafkaProducer(bootstrap_servers=self.servers) as producer:
            for at in range(self.sent, self.sent + count):
                for partition in range(PARTITIONS):
                    await producer.send(self.topic, b"%d" % at, partition=partition)
        self.sent += count

    def writers(self) -> dict[int, list[str]]:
        """Who wrote each partition, in the order of the feed."""
        found: defaultdict[int, list[str]] = defaultdict(list)
        for manifest in manifests(self.directory):
            for key in manifest.ranges:
                found[int(key.rpartition("/")[2])].append(manifest.writer.name)
        return found

    def is_stored(self) -> bool:
        """Everything that was sent is in the feed."""
        return self.count() >= self.sent * PARTITIONS

    def count(self) -> int:
        """Rows in the feed."""
        return sum(found.rows for found in manifests(self.directory))

    async def send_until(self, is_so: Callable[[], bool]) -> None:
        """Sends a few records again and again, until everything is stored and this is so."""
        async with asyncio.timeout(PATIENCE):
            while not is_so():
                await self.send(10)
                while not self.is_stored():
                    await asyncio.sleep(0.05)

    def share(self) -> list[str]:
        """The writer of each partition's last segment."""
        return [names[-1] for names in self.writers().values()]


class Query:
    """What a query reads, micro-batch by micro-batch."""

    def __init__(self, directory: Path) -> None:
        self._reader = FeedStreamReader(FeedUrl.parse(f"feed://{directory}"), 2)
        self._at = self._reader.initialOffset()
        self.rows: defaultdict[int, list[int]] = defaultdict(list)

    def read(self) -> None:
        """A micro-batch of all that is there."""
        end = self._reader.latestOffset(self._at, self._reader.getDefaultReadLimit())
        for part in self._reader.partitions(self._at, end):
            for batch in self._reader.read(part):
                for row in batch.to_pylist():
                    self.rows[row["partition"]].append(int(row["value"]))
        self._at = end


@pytest.mark.campaign
async def test_partitions_that_move_between_processes_are_fed_once_and_in_order(
    kafka_server: KafkaServer, tmp_path: Path
) -> None:
    """One joins, is stopped until others have its partitions, goes on, and is killed (SIGKILL)."""
    team = Team(kafka_server.bootstrap_servers, tmp_path / "feed")
    await kafka_server.create_topic(team.topic, partitions=PARTITIONS)
    async with team.member():
        await team.send_until(lambda: len(team.writers()) == PARTITIONS)
        (first,) = set(team.share())
        query = Query(team.directory)
        query.read()
        async with team.member() as other:
            await team.send_until(lambda: len(set(team.share())) == 2)
            await team.send(100)
            os.kill(other.pid, signal.SIGSTOP)
            await team.send_until(lambda: set(team.share()) == {first})
            os.kill(other.pid, signal.SIGCONT)
            await team.send_until(lambda: len(set(team.share())) == 2)
            query.read()
            await team.send(100)
            other.kill()
            await team.send_until(lambda: set(team.share()) == {first})
    query.read()
    assert query.rows == {at: list(range(team.sent)) for at in range(PARTITIONS)}
    assert len({name for names in team.writers().values() for name in names}) == 2
