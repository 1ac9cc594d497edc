"""Random network faults between Spark and Kafka for ten minutes: each record is in the sink once."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import pytest
from pyspark.errors import StreamingQueryException

from consumer_sdk import spark_bridge
from tests.integration.faults.fault_proxy import Fault, FaultProxy, kafka_addresses
from tests.integration.faults.worlds import KafkaWorld
from tests.spark_bridge.pull.kafka_query import ON_SPARK, Kafka

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

pytestmark = [*ON_SPARK, pytest.mark.kafka, pytest.mark.campaign(minutes=15)]

SECONDS = 600.0
RATE = 200
LONGEST = 8.0
PATIENCE = 900.0


class BadNetwork:
    """A proxy and a producer, at work in a thread of their own.

    Args:
        world: the topic.

    Attributes:
        address: what Spark is given.
    """

    def __init__(self, kafka: Kafka, folder: Path) -> None:
        self.world = KafkaWorld(kafka, folder)
        self.proxy = FaultProxy(kafka.bootstrap_servers, kafka_addresses, seed=8)
        self.address = ""
        self._is_ready, self._ends = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()))

    def __enter__(self) -> Self:
        self._thread.start()
        assert self._is_ready.wait(PATIENCE)
        return self

    def __exit__(self, *_: object) -> None:
        self._ends.set()
        self._thread.join()

    async def _run(self) -> None:
        await self.world.create()
        async with self.proxy:
            self.address = self.proxy.address
            async with self.world.producing(RATE):
                self._is_ready.set()
                async with self.proxy.faulty(list(Fault), LONGEST):
                    await asyncio.sleep(SECONDS)
            while not self._ends.is_set():
                await asyncio.sleep(0.1)

    @property
    def is_over(self) -> bool:
        """Nothing is produced any more, and the network is good."""
        return self._is_ready.is_set() and self.proxy.fault is Fault.NONE and self._is_quiet

    @property
    def _is_quiet(self) -> bool:
        before = len(self.world.ledger.produced)
        time.sleep(2)
        return len(self.world.ledger.produced) == before


def test_each_record_is_in_the_sink_once(
    spark: SparkSession, kafka_server: Kafka, tmp_path: Path
) -> None:
    """A query that fails over it is started again, as an operator would."""
    with BadNetwork(kafka_server, tmp_path) as network:
        runs = Runs(lambda: start(spark, network, tmp_path))
        began = time.monotonic()
        while time.monotonic() - began < SECONDS or not network.is_over:
            runs.go_on()
        produced = network.world.ledger.produced
        deadline = time.monotonic() + PATIENCE
        while len(counts := stored(spark, tmp_path)) < len(produced):
            assert time.monotonic() < deadline, f"{len(produced) - len(counts)} are missing"
            runs.go_on()
        runs.query.stop()
        counts = stored(spark, tmp_path)
        print(  # noqa: T201 - what a campaign was run for
            f"Spark: {dict(network.proxy.spells)}, {network.proxy.damaged} frames damaged, "
            f"{len(produced)} records, {len(produced - counts.keys())} lost, "
            f"{counts.total() - len(counts)} twice, {len(runs.failures)} queries failed: {runs.failures}"
        )
        assert counts.keys() == produced
        assert counts.total() == len(counts)


class Runs:
    """A query that is started again whenever it has failed.

    Attributes:
        query: the run of now.
        failures: why those before it ended.
    """

    def __init__(self, begin: Callable[[], StreamingQuery]) -> None:
        self._begin = begin
        self.query = begin()
        self.failures: list[str] = []

    def go_on(self) -> None:
        """Lets it run for some seconds."""
        try:
            self.query.awaitTermination(5)
        except StreamingQueryException as error:
            self.failures.append(str(error)[:500])
            self.query = self._begin()


def start(spark: SparkSession, network: BadNetwork, folder: Path) -> StreamingQuery:
    """The query, from its checkpoint."""
    url = f"kafka://{network.address}/{network.world.name}"
    frame = spark_bridge.read_stream(
        spark, url, startingOffsets="earliest", maxOutage="2m", includeHeaders=False
    )
    writer: Any = frame.selectExpr("CAST(value AS STRING) AS value").writeStream
    return (  # type: ignore[no-any-return]  # PySpark's writer returns it
        writer.format("text")
        .option("path", str(folder / "rows"))
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(processingTime="1 second")
        .start()
    )


def stored(spark: SparkSession, folder: Path) -> Counter[int]:
    """How often each record is in the sink."""
    if not (folder / "rows" / "_spark_metadata").exists():
        return Counter()
    rows = spark.read.text(str(folder / "rows")).collect()
    return Counter(int(row[0].split()[0]) for row in rows)
