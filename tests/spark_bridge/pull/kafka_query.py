"""A topic on a real Kafka, and a sink that counts what a query brought of it."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Coroutine, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import pytest

from consumer_sdk.adapters.kafka.ranges import KafkaRanges
from consumer_sdk.records import StartPoint
from consumer_sdk.testing.servers import ExternalKafka, KafkaServer

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery

ON_SPARK = (
    pytest.mark.spark,
    # The first query starts Spark's machinery, which takes a minute where others work too.
    # pandas is not used here, but Spark looks at its version wherever it is installed.
    pytest.mark.filterwarnings("ignore:PySpark does not yet fully support pandas:FutureWarning"),
)
"""Marks of tests whose queries run in real Spark."""

Kafka = KafkaServer | ExternalKafka
T = TypeVar("T")


def complete(work: Coroutine[Any, Any, T]) -> T:
    """Run it in a loop of its own."""
    loop = asyncio.new_event_loop()
    try:
        return loop.run_until_complete(work)
    finally:
        loop.run_until_complete(loop.shutdown_default_executor())
        loop.close()


def until(claim: Callable[[], bool], query: StreamingQuery, seconds: float = 300.0) -> None:
    """Wait until it is true, while the query runs."""
    deadline = time.monotonic() + seconds
    while not claim():
        assert query.isActive, query.exception()
        assert time.monotonic() < deadline, "it did not become true"
        query.awaitTermination(1)


class Topic:
    """A topic and a group of the test's own.

    Args:
        server: where.
        name: of both.
        partitions: how many.
    """

    def __init__(self, server: Kafka, name: str, partitions: int = 2) -> None:
        self.servers = server.bootstrap_servers
        self.name = name
        self.partitions = partitions
        self.counts = [0] * partitions
        complete(server.create_topic(name, partitions))

    @property
    def url(self) -> str:
        """What `read_stream` takes."""
        return f"kafka://{self.servers}/{self.name}?group={self.name}"

    @property
    def expected(self) -> list[tuple[int, int]]:
        """Every (partition, offset) that was sent."""
        return [(p, offset) for p, count in enumerate(self.counts) for offset in range(count)]

    def send(self, count: int) -> None:
        """Send so many records, in turn to each partition; a value says where it is."""
        complete(self._send(count))

    async def _send(self, count: int) -> None:
        from aiokafka import AIOKafkaProducer

        async with AIOKafkaProducer(bootstrap_servers=self.servers, linger_ms=5) as producer:
            sent = []
            for each in range(count):
                partition = each % self.partitions
                value = b"%d:%d" % (partition, self.counts[partition])
                self.counts[partition] += 1
                sent.append(await producer.send(self.name, value, partition=partition))
            await asyncio.gather(*sent)

    def lag(self) -> int:
        """Return how far the group stands behind the topic's end."""
        return complete(self._lag())

    async def _lag(self) -> int:
        reader = KafkaRanges(self.name, bootstrap_servers=self.servers, group=self.name)
        await reader.open()
        try:
            partitions = await reader.partitions()
            ends = await reader.positions(partitions, StartPoint.LATEST)
            group = await reader.positions(partitions, StartPoint.BROKER)
        finally:
            await reader.aclose()
        lags: list[int] = [ends[each] - (group[each] or 0) for each in partitions]  # type: ignore[operator]  # the topic has an end
        return sum(lags)

    async def join(self) -> Any:
        """Return a member of the group, which no position is taken from then."""
        from aiokafka import AIOKafkaConsumer

        member = AIOKafkaConsumer(
            self.name, bootstrap_servers=self.servers, group_id=self.name, enable_auto_commit=False
        )
        await member.start()
        return member


class Sink:
    """What a query delivered, by micro-batch; survives restarts. The last run of a batch counts.

    Args:
        frame: the streaming DataFrame.
        checkpoint: the query's directory.
        fail_at: the batch after which the sink fails, once.
    """

    def __init__(self, frame: DataFrame, checkpoint: Path, fail_at: int | None = None) -> None:
        self.frame = frame
        self.checkpoint = checkpoint
        self.fail_at = fail_at
        self.batches: dict[int, list[tuple[int, int]]] = {}

    def __call__(self, frame: DataFrame, number: int) -> None:
        """Take a micro-batch by two actions, so that the source is read twice."""
        rows = sorted((row[0], row[1]) for row in frame.select("partition", "offset").collect())
        assert frame.count() == len(rows)
        assert self.batches.setdefault(number, rows) == rows, "a batch was read differently"
        if number == self.fail_at:
            self.fail_at = None
            raise RuntimeError("the sink failed")

    @property
    def rows(self) -> list[tuple[int, int]]:
        """Every (partition, offset) that arrived, sorted; twice where it did twice."""
        return sorted(row for rows in self.batches.values() for row in rows)

    @property
    def repeated(self) -> Mapping[tuple[int, int], int]:
        """What arrived more than once."""
        return {row: count for row, count in Counter(self.rows).items() if count > 1}

    def start(self, **trigger: Any) -> StreamingQuery:
        """Start the query from its checkpoint."""
        writer = self.frame.writeStream.option("checkpointLocation", str(self.checkpoint))
        return (writer.trigger(**trigger) if trigger else writer).foreachBatch(self).start()

    def run(self, timeout: float = 600.0) -> None:
        """Run the query until it has taken what is there."""
        query = self.start(availableNow=True)
        try:
            assert query.awaitTermination(int(timeout)), "the run did not end"
        finally:
            query.stop()
