"""A feed in real Spark."""

from __future__ import annotations

import asyncio
import datetime as dt
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from consumer_sdk import spark_bridge
from consumer_sdk.errors import ConfigurationError
from consumer_sdk.records import Assignment, Message, Partition
from consumer_sdk.spark_bridge import SparkFeed
from tests.spark_bridge.feeding import messages, offsets

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

pytestmark = [
    pytest.mark.spark,
    # The first query starts Spark's machinery, which takes a minute where others work too.
    # pandas is not used here, but Spark looks at its version wherever it is installed.
    pytest.mark.filterwarnings("ignore:PySpark does not yet fully support pandas:FutureWarning"),
]


def store(directory: Path, *groups: Sequence[Message]) -> None:
    """Feeds each group as a segment."""

    async def write() -> None:
        async with SparkFeed(directory, max_wait=0.0) as feed:
            for group in groups:
                await feed.write(group)

    asyncio.run(write())


class Sink:
    """What a query delivered, per micro-batch; survives restarts of the query."""

    def __init__(self, frame: DataFrame, checkpoint: Path) -> None:
        self.frame = frame
        self.checkpoint = checkpoint
        self.batches: list[tuple[int, list[int]]] = []
        self.fail_at: int | None = None

    def __call__(self, frame: DataFrame, number: int) -> None:
        """Takes a micro-batch: two actions, so that the source is read twice (trap 7)."""
        found = sorted(row["offset"] for row in frame.select("offset").collect())
        assert frame.count() == len(found)
        self.batches.append((number, found))
        if number == self.fail_at:
            raise RuntimeError("sink failed")

    def start(self, **trigger: Any) -> StreamingQuery:
        """Starts the query from its checkpoint."""
        writer = self.frame.writeStream.option("checkpointLocation", str(self.checkpoint))
        return (writer.trigger(**trigger) if trigger else writer).foreachBatch(self).start()

    def run(self) -> None:
        """Runs the query until it has taken what is there."""
        query = self.start(availableNow=True)
        try:
            query.awaitTermination()
        finally:
            query.stop()


async def test_a_stream_read_while_it_is_fed_has_each_record_once(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Records fed before and during the query, some of them twice, are delivered once."""
    async with SparkFeed(tmp_path / "feed", max_wait=0.01) as feed:
        frame = spark_bridge.read_stream(spark, f"feed://{tmp_path}/feed")
        sink = Sink(frame, tmp_path / "checkpoint")
        query = await asyncio.to_thread(sink.start)
        for first in range(0, 1000, 250):
            await asyncio.gather(*map(feed.put, messages(max(0, first - 30), first + 249)))
            await asyncio.to_thread(query.processAllAvailable)
        batches = len(sink.batches)
        # Trap 2: an idle second plans no micro-batch, although Spark asks all the time.
        assert not await asyncio.to_thread(query.awaitTermination, 1)
        await asyncio.to_thread(query.stop)
    assert sorted(offset for _, found in sink.batches for offset in found) == list(range(1000))
    assert len(sink.batches) == batches >= 4
    assert all(found for _, found in sink.batches)


def test_values_and_types_arrive_exactly(spark: SparkSession, tmp_path: Path) -> None:
    """Trap 12: nulls, headers with null values, empty bytes and times, of two brokers."""
    kafka, shard = Assignment(Partition("orders", "3"), 1), Assignment(Partition("c", "sh-1"), 1)
    full = Message.make(
        kafka, 5, b"\x00\xff", key=b"k", headers=[("h", b"1"), ("h", None)], timestamp=1_500
    )
    store(tmp_path, [full, Message.make(kafka, 6, None)], [Message.make(shard, (9, 1), b"")])
    frame = spark_bridge.read(spark, f"feed://{tmp_path}")
    assert frame.schema.simpleString() == (
        "struct<key:binary,value:binary,topic:string,partition:int,offset:bigint,"
        "timestamp:timestamp,timestampType:int,headers:array<struct<key:string,value:binary>>,"
        "partitionId:string,position:string>"
    )
    found = [row.asDict(recursive=True) for row in frame.orderBy("position").collect()]
    time = dt.datetime.fromtimestamp(1.5)  # noqa: DTZ006 - Spark shows times in the local zone
    headers = [{"key": "h", "value": b"1"}, {"key": "h", "value": None}]
    assert [tuple(row.values()) for row in found] == [
        (b"k", b"\x00\xff", "orders", 3, 5, time, None, headers, "3", "5"),
        (None, None, "orders", 3, 6, None, None, None, "3", "6"),
        (None, b"", "c", None, None, None, None, None, "sh-1", "9:1"),
    ]


def test_available_now_takes_all_in_limited_batches(spark: SparkSession, tmp_path: Path) -> None:
    """The limit holds for each micro-batch, and the run ends with nothing left."""
    store(tmp_path / "feed", *[messages(at, at + 9) for at in range(0, 60, 10)])
    url = f"feed://{tmp_path}/feed?maxRowsPerTrigger=25"
    sink = Sink(spark_bridge.read_stream(spark, url), tmp_path / "checkpoint")
    sink.run()
    assert [len(found) for _, found in sink.batches] == [20, 20, 20]
    store(tmp_path / "feed", messages(55, 69))
    sink.run()
    assert sink.batches[3:] == [(3, list(range(60, 70)))]


def test_a_batch_lost_in_a_crash_is_read_again_unchanged(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Trap 8: after a failure the uncommitted batch has the same rows, whatever came since."""
    store(tmp_path / "feed", messages(0, 9))
    frame = spark_bridge.read_stream(spark, f"feed://{tmp_path}/feed")
    sink = Sink(frame, tmp_path / "checkpoint")
    sink.run()
    store(tmp_path / "feed", messages(10, 19))
    sink.fail_at = 1
    with pytest.raises(Exception, match="sink failed"):
        sink.run()
    store(tmp_path / "feed", messages(20, 29))
    sink.fail_at = None
    sink.run()
    assert sink.batches == [
        (0, list(range(10))),
        (1, list(range(10, 20))),
        (1, list(range(10, 20))),
        (2, list(range(20, 30))),
    ]


def test_a_failed_task_reads_its_segments_again(spark: SparkSession, tmp_path: Path) -> None:
    """Trap 6: a task that fails half-way is run again and adds nothing twice."""
    store(tmp_path / "feed", messages(0, 99))
    flag = tmp_path / "failed"

    def fail_once(batches: Any) -> Any:
        for batch in batches:
            yield batch
            if not flag.exists():
                flag.touch()
                raise RuntimeError("task failed")

    frame = spark_bridge.read(spark, f"feed://{tmp_path}/feed").select("offset")
    found = frame.mapInArrow(fail_once, "offset bigint").collect()
    assert flag.exists()
    assert sorted(row["offset"] for row in found) == list(range(100))


def test_a_records_bad_directory_or_url_fails_before_spark(
    spark: SparkSession, tmp_path: Path
) -> None:
    """A wrong URL, or a directory that is not there, is a ConfigurationError at once."""
    for read in (spark_bridge.read, spark_bridge.read_stream):
        with pytest.raises(ConfigurationError, match="there is no directory"):
            read(spark, f"feed://{tmp_path}/missing")
        with pytest.raises(ConfigurationError, match="give kafka://"):
            read(spark, "http://host/path")


def test_a_schema_of_the_users_own_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    """Trap 12: a narrower ``.schema()`` says what to do, rather than fail in a worker."""
    store(tmp_path, messages(0, 9))
    spark_bridge.read(spark, f"feed://{tmp_path}")  # makes the format known
    frame = spark.read.format("consumer_sdk").option("url", f"feed://{tmp_path}")
    with pytest.raises(Exception, match=r"leave \.schema\(\) out"):
        frame.schema("offset bigint").load().collect()


def test_the_rows_in_spark_are_the_rows_on_disk(spark: SparkSession, tmp_path: Path) -> None:
    """Trap 14: two feeds in one application do not mix, though their workers are reused."""
    store(tmp_path / "a", messages(0, 9))
    store(tmp_path / "b", messages(100, 119))
    for name in ("a", "b", "a"):
        frame = spark_bridge.read(spark, f"feed://{tmp_path}/{name}")
        found = sorted(row["offset"] for row in frame.select("offset").collect())
        assert found == offsets(tmp_path / name)
