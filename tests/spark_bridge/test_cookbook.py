"""docs/spark-cookbook.md: recipes run as they stand there, on a real Kafka and a real Spark."""

from __future__ import annotations

import asyncio
import json
import re
import uuid
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.spark_bridge.pull.kafka_query import ON_SPARK, Kafka, complete

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.kafka, *ON_SPARK]

PROGRAM = Path(__file__).parents[2] / "docs" / "snippets" / "spark-cookbook" / "cookbook.py"
TEXT = PROGRAM.read_text(encoding="utf-8")
BEGIN = datetime(2026, 1, 1, tzinfo=UTC)


def recipe(name: str) -> str:
    """The program below the line that names it; all above the first one for an empty name."""
    if not name:
        return TEXT.partition("\n# -- ")[0]
    return TEXT.partition(f"\n# -- {name}\n")[2].partition("\n# --")[0]


class Kitchen:
    """Runs recipes with topics and folders of the test's own, until all is read.

    Attributes:
        names: the programs' variables.
        suffix: of the topics' names.
    """

    def __init__(self, spark: SparkSession, server: Kafka, folder: Path) -> None:
        self._servers = server.bootstrap_servers
        self._server = server
        self.suffix = uuid.uuid4().hex[:8]
        self._folder = folder
        self._made: set[str] = set()
        self.names: dict[str, Any] = {"spark": spark}
        for name in ("", "orders"):
            self.cook(name)

    def cook(self, heading: str) -> None:
        """Runs a recipe, and waits for the end of its query."""
        text = self._with_topics(recipe(heading))
        text = re.sub(r'trigger\(processingTime=".*?"\)', "trigger(availableNow=True)", text)
        text = text.replace("127.0.0.1:9092", self._servers).replace("/data", str(self._folder))
        exec(compile(text, f"cookbook.py: {heading}", "exec"), self.names)  # noqa: S102 - the page's own
        if "query" in self.names:
            self.names.pop("query").awaitTermination()

    def _with_topics(self, text: str) -> str:
        for topic in ("orders", "payments"):
            for form in ("{}?group=", '9092/{}"', '"subscribe", "{}"'):
                text = text.replace(form.format(topic), form.format(f"{topic}-{self.suffix}"))
        return text

    def send(self, topic: str, records: Iterable[tuple[dict[str, Any], datetime]]) -> None:
        """Writes values as JSON, with Kafka's times; the topic has one partition."""
        complete(self._send(f"{topic}-{self.suffix}", list(records)))

    async def _send(self, topic: str, records: list[tuple[dict[str, Any], datetime]]) -> None:
        from aiokafka import AIOKafkaProducer

        if topic not in self._made:
            await self._server.create_topic(topic, 1)
            self._made.add(topic)
        async with AIOKafkaProducer(bootstrap_servers=self._servers, linger_ms=5) as producer:
            sent = [
                await producer.send(
                    topic,
                    json.dumps(value).encode(),
                    timestamp_ms=int(at.timestamp() * 1000),
                )
                for value, at in records
            ]
            await asyncio.gather(*sent)


def order(number: int, at: datetime, amount: float = 1.0) -> tuple[dict[str, Any], datetime]:
    """An order as the recipes expect it."""
    return {"id": number, "customer": "a", "amount": amount, "at": at.isoformat()}, at


@pytest.fixture
def kitchen(spark: SparkSession, kafka_server: Kafka, tmp_path: Path) -> Kitchen:
    """With nothing in the topics yet."""
    return Kitchen(spark, kafka_server, tmp_path)


def test_a_backfill_reads_from_a_time_to_a_time(kitchen: Kitchen) -> None:
    """The first record at the begin, and none at the end."""
    hours = (0, 5, 6, 7, 11, 12, 13)
    kitchen.send("orders", [order(hour, BEGIN + timedelta(hours=hour)) for hour in hours])
    kitchen.cook("backfill from a time to a time")
    rows = kitchen.names["backfill"].select("decoded.id").collect()
    assert sorted(row.id for row in rows) == [6, 7, 11]


@pytest.mark.campaign
def test_a_window_is_written_when_it_has_ended(kitchen: Kitchen, tmp_path: Path) -> None:
    """The watermark follows the newest order; the last window is still open."""
    minutes = (1, 50, 70, 131)
    kitchen.send("orders", [order(at, BEGIN + timedelta(minutes=at), 2.5) for at in minutes])
    kitchen.cook("windows that end: watermarks")
    found = kitchen.names["spark"].read.parquet(str(tmp_path / "revenue")).orderBy("start")
    rows = [(row.start.timestamp(), row.orders, row.amount) for row in found.collect()]
    start = BEGIN.timestamp()
    assert rows == [(start, 2, 5.0), (start + 3600, 1, 2.5)]


@pytest.mark.campaign
def test_two_streams_are_joined_within_a_time(kitchen: Kitchen, tmp_path: Path) -> None:
    """A payment after more than an hour belongs to no order."""
    kitchen.send("orders", [order(each, BEGIN) for each in (1, 2, 3)])
    paid = [(1, 5), (2, 61), (4, 5)]
    late = [
        ({"order": n, "paid": (BEGIN + timedelta(minutes=at)).isoformat()}, BEGIN) for n, at in paid
    ]
    kitchen.send("payments", late)
    kitchen.cook("join two streams")
    found = kitchen.names["spark"].read.parquet(str(tmp_path / "paid"))
    assert [(row.id, row.order) for row in found.collect()] == [(1, 1)]


@pytest.mark.campaign
def test_a_query_on_sparks_own_source_is_moved(kitchen: Kitchen, tmp_path: Path) -> None:
    """The new one goes on where the old one was, by a checkpoint as that source writes it."""
    kitchen.send("orders", [order(each, BEGIN) for each in range(6)])
    old = tmp_path / "checkpoints" / "old"
    for name in ("offsets", "commits"):
        (old / name).mkdir(parents=True)
    (old / "metadata").write_text(f'{{"id":"{uuid.uuid4()}"}}')
    head = 'v1\n{"batchWatermarkMs":0,"batchTimestampMs":0,"conf":{}}\n'
    for number, end in (("2", 1), ("3", 4)):
        offsets = json.dumps({f"orders-{kitchen.suffix}": {"0": end}})
        (old / "offsets" / number).write_text(f"{head}{offsets}")
        (old / "commits" / number).write_text('v1\n{"nextBatchWatermarkMs":0}')
    seen: list[tuple[int, int]] = []

    def process(rows: Any, number: int) -> None:
        seen.extend((number, row.offset) for row in rows.collect())

    kitchen.names["process"] = process
    kitchen.cook("move a running query from formatkafka")
    assert sorted(seen) == [(4, 4), (4, 5)]


def test_upsert_takes_the_newest_row_of_each_id(kitchen: Kitchen) -> None:
    """By a statement that Spark can parse, with neither Delta nor Iceberg."""
    spark = kitchen.names["spark"]
    text = recipe("upsert into a delta table").partition("spark.sql(f")[0]
    exec(compile(text, "cookbook.py: upsert", "exec"), kitchen.names)  # noqa: S102 - the page's own
    statement = kitchen.names["UPSERT"].format(table="orders")
    spark._jsparkSession.sessionState().sqlParser().parsePlan(statement)
    kitchen.names["UPSERT"] = "SELECT '{table}'"
    rows = spark.sql(
        "SELECT named_struct('id', id, 'amount', amount) AS decoded, offset "
        "FROM VALUES (1, 1.0, 3), (1, 2.0, 5), (2, 4.0, 4) AS t(id, amount, offset)"
    )
    kitchen.names["upsert_into"]("orders")(rows, 0)
    found = spark.table("changes").orderBy("id").collect()
    assert [(row.id, row.amount, row.offset) for row in found] == [(1, 2.0, 5), (2, 4.0, 4)]
