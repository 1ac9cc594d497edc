"""A feed that lets go of what real Spark has committed."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from consumer_sdk import spark_bridge
from consumer_sdk.spark_bridge import SparkFeed
from tests.spark_bridge.feeding import messages, segment_names
from tests.spark_bridge.test_frames import Sink

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [
    pytest.mark.spark,
    pytest.mark.filterwarnings("ignore:PySpark does not yet fully support pandas:FutureWarning"),
]


async def until_empty(feed: SparkFeed) -> None:
    """Waits until Spark has committed everything, and it is deleted."""
    async with asyncio.timeout(300):
        while feed.stats().segments or feed.stats().backlog_rows:
            await asyncio.sleep(0.05)


@pytest.mark.campaign
async def test_a_full_feed_and_a_running_query_pass_records_on(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Trap 23, backlog cap and GC: four times the cap goes through, once, and nothing is left."""
    path = tmp_path / "feed"
    async with SparkFeed(
        path, max_wait=0.0, max_rows=50, max_backlog_rows=100, keep_for=0.0
    ) as feed:
        url = f"feed://{path}?retention=committed&reader=sink"
        sink = Sink(spark_bridge.read_stream(spark, url), tmp_path / "checkpoint")
        query = await asyncio.to_thread(sink.start)
        try:
            await feed.write(messages(0, 399))
            # Also the last micro-batch, although no further one is planned (trap 3).
            await until_empty(feed)
        finally:
            await asyncio.to_thread(query.stop)
    assert sorted(offset for _, found in sink.batches for offset in found) == list(range(400))
    assert segment_names(path) == set()


async def test_a_query_that_failed_finds_its_batch_and_a_new_one_the_rest(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Traps 7 and 8: nothing that was planned and not committed goes, however often it is read."""
    path = tmp_path / "feed"
    async with SparkFeed(path, max_wait=0.0, keep_for=0.0) as feed:
        await feed.write(messages(0, 9))
        url = f"feed://{path}?retention=committed&reader=sink"
        sink = Sink(spark_bridge.read_stream(spark, url), tmp_path / "checkpoint")
        sink.fail_at = 0
        with pytest.raises(Exception, match="sink failed"):
            await asyncio.to_thread(sink.run)
        assert len(segment_names(path)) == 1
        sink.fail_at = None
        await asyncio.to_thread(sink.run)
        await until_empty(feed)
        await feed.write(messages(5, 19))
        # While the other still holds the rest: nothing holds it for a query without a name.
        late = Sink(spark_bridge.read_stream(spark, f"feed://{path}"), tmp_path / "late")
        await asyncio.to_thread(late.run)
        await asyncio.to_thread(sink.run)
    first, rest = list(range(10)), list(range(10, 20))
    assert sink.batches == [(0, first), (0, first), (1, rest)]
    assert late.batches == [(0, rest)]
