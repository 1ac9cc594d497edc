"""Metrics of queries on a real Spark."""

from __future__ import annotations

import asyncio
import queue
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from consumer_sdk.errors import ConfigurationError
from consumer_sdk.spark_bridge import SparkFeed, read_stream
from consumer_sdk.spark_bridge.metrics.lag import FEED
from consumer_sdk.spark_bridge.metrics.metrics import SourceMetrics, count_bytes, watch
from consumer_sdk.spark_bridge.metrics.query_stats import QueryStats
from tests.spark_bridge.feeding import messages

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [
    pytest.mark.spark,
    # The first query starts Spark's machinery, which takes a minute where others work too.
]

LONGEST = 300.0
"""Seconds to wait for a report on a busy machine."""


class Reports:
    """What a callback heard."""

    def __init__(self) -> None:
        self._heard: queue.SimpleQueue[QueryStats] = queue.SimpleQueue()

    def __call__(self, stats: QueryStats) -> None:
        self._heard.put(stats)
        raise RuntimeError("a sink that is away")  # must reach no query

    def until_ended(self, *names: str) -> dict[str, list[QueryStats]]:
        """The reports of these queries, up to their ends."""
        found: dict[str, list[QueryStats]] = {name: [] for name in names}
        while not all(reports and not reports[-1].is_active for reports in found.values()):
            stats = self._heard.get(timeout=LONGEST)
            found.setdefault(stats.name, []).append(stats)
        return found


@pytest.fixture
def reports() -> Reports:
    """Hears, and fails."""
    return Reports()


@pytest.fixture
def metrics(spark: SparkSession, reports: Reports) -> Iterator[SourceMetrics]:
    """Watches the session for one test."""
    with watch(spark, reports) as metrics:
        yield metrics


def fed(directory: Path, last: int) -> str:
    """The URL of a feed with the records 0..last, five in a segment."""

    async def feed() -> None:
        async with SparkFeed(directory, max_wait=0.0, max_rows=5) as writer:
            await writer.write(messages(0, last))

    asyncio.run(feed())
    return f"feed://{directory}?maxRowsPerTrigger=10"


def start(rows: DataFrame, name: str, checkpoint: Path) -> Any:
    """A query to the end of what is there."""
    writer = rows.writeStream.format("noop").queryName(name)
    return writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start()


def test_queries_are_followed_to_their_end(
    spark: SparkSession, metrics: SourceMetrics, reports: Reports, tmp_path: Path
) -> None:
    """Two at a time, each with its own counts; one of somebody else's source is ignored."""
    first = count_bytes(read_stream(spark, fed(tmp_path / "a", 19)))
    second = read_stream(spark, fed(tmp_path / "b", 4))
    other = spark.readStream.format("rate").load()
    queries = [
        start(first, "first", tmp_path / "1"),
        start(second, "second", tmp_path / "2"),
        start(other, "other", tmp_path / "3"),
    ]
    for query in queries:
        query.awaitTermination()
        assert query.exception() is None
    found = reports.until_ended("first", "second")
    assert found.keys() == {"first", "second"}
    lags = [each.sources[0].lag for each in found["first"]]
    assert [lag.behind[FEED] for lag in lags] == [2, 0, 0]
    assert lags[0].unit == "segments"
    last = found["first"][-1]
    sizes = [len(each.key or b"") + len(each.value or b"") for each in messages(0, 19)]
    assert (last.rows, last.bytes, last.batches) == (20, sum(sizes), 2)
    assert (found["second"][-1].rows, found["second"][-1].bytes) == (5, None)
    while metrics.callback_errors < sum(map(len, found.values())):
        pass  # the last one is heard before it is counted
    assert metrics.callback_errors == sum(map(len, found.values()))
    assert {each.name: each.rows for each in metrics.stats()} == {"first": 20, "second": 5}


def test_closed_metrics_hear_nothing_more(spark: SparkSession, tmp_path: Path) -> None:
    """The listener is gone from the session; closing twice does nothing."""
    closed, reports = watch(spark), Reports()
    closed.close()
    closed.close()
    with watch(spark, reports):
        start(read_stream(spark, fed(tmp_path / "a", 4)), "late", tmp_path / "1").awaitTermination()
        reports.until_ended("late")
    assert closed.stats() == ()


def test_bytes_of_rows_without_a_value_are_refused(spark: SparkSession) -> None:
    """There is nothing to count."""
    with pytest.raises(ConfigurationError, match="value"):
        count_bytes(spark.range(1))
