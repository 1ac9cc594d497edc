"""How real Spark runs a query: its logs, its stops and restarts, its sources and processes."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.integration.spark_kills.stage import committed_end
from tests.spark_bridge.pull.kafka_query import ON_SPARK, Kafka, Sink, Topic, until
from tests.spark_bridge.pull.trap_query import (
    RUNNER,
    frame_of,
    group_positions,
    move_group,
    spark_processes,
    until_acked,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

pytestmark = [*ON_SPARK, pytest.mark.kafka]


@pytest.mark.campaign
def test_with_asynchronous_progress_no_ack_leads_the_log(
    spark: SparkSession, topic: Topic, tmp_path: Path
) -> None:
    """Trap 4: the engine plans from ends that it has not logged; they are not acked."""
    asynchronous = {
        "asyncProgressTrackingEnabled": "true",
        "asyncProgressTrackingCheckpointIntervalMs": "600000",
    }
    writer = frame_of(spark, topic).writeStream.format("noop").options(**asynchronous)
    query = writer.option("checkpointLocation", str(tmp_path)).start()
    try:
        for _ in range(6):
            topic.send(10)
            until(lambda: _rows_read(query) == sum(topic.counts), query)
            group = group_positions(topic)
            assert all(at <= end for at, end in zip(group, logged(tmp_path), strict=True)), group
        assert sum(logged(tmp_path)) < sum(topic.counts), "the log never lagged: nothing is tested"
    finally:
        query.stop()


def logged(checkpoint: Path) -> list[int]:
    """Where the last batch ended that Spark has logged as done, in each of two partitions."""
    ends = committed_end(checkpoint)
    return [int(ends.get(each, 0)) for each in ("0", "1")]


def _rows_read(query: object) -> int:
    reports: list[dict[str, int]] = query.recentProgress  # type: ignore[attr-defined]  # Spark's
    return sum(each["numInputRows"] for each in {r["batchId"]: r for r in reports}.values())


def test_sparks_checkpoint_wins_over_group_and_store(
    spark: SparkSession, topic: Topic, tmp_path: Path
) -> None:
    """Trap 9: both may be ahead, behind, or away; each record arrives once all the same."""
    store = tmp_path / "state.db"
    frame = frame_of(spark, topic, store=f"sqlite://{store}", startingOffsets="committed")
    sink = Sink(frame, tmp_path / "one")
    topic.send(20)
    sink.run()
    topic.send(20)
    # Another query of the same group and store takes both to the end.
    Sink(frame, tmp_path / "two").run()
    until_acked(topic)
    sink.run()
    assert sink.rows == topic.expected
    for path in tmp_path.glob("state.db*"):
        path.unlink()
    move_group(topic, 0)
    topic.send(20)
    sink.run()
    assert sink.rows == topic.expected
    until_acked(topic)


@pytest.mark.campaign
def test_an_idle_query_stops_soon(spark: SparkSession, topic: Topic, tmp_path: Path) -> None:
    """Trap 19: whatever question to the broker is open."""
    topic.send(10)
    sink = Sink(frame_of(spark, topic), tmp_path)
    times = []
    for _ in range(3):
        query = sink.start()
        until(lambda: sink.rows == topic.expected, query)
        assert not query.awaitTermination(1)
        began = time.monotonic()
        query.stop()
        times.append(time.monotonic() - began)
    # The least of three: others may be using the machine.
    assert min(times) < 10, times


@pytest.mark.campaign
def test_a_killed_source_runner_ends_the_query_which_goes_on_when_it_is_started_again(
    spark: SparkSession, topic: Topic, tmp_path: Path
) -> None:
    """Trap 20: no query hangs or skips; what Spark says of it is nothing, as the manual has it."""
    sink = Sink(frame_of(spark, topic), tmp_path)
    topic.send(50)
    others = set(spark_processes(RUNNER))  # those of earlier queries may not have ended yet
    query = sink.start()
    until(lambda: sink.rows == topic.expected, query)
    (runner,) = set(spark_processes(RUNNER)) - others
    os.kill(runner, signal.SIGKILL)
    topic.send(50)
    with pytest.raises(Exception, match=r"STREAM_FAILED|terminated with exception"):
        query.awaitTermination(60)
    sink.run()
    assert sink.rows == topic.expected
    until_acked(topic)


@pytest.fixture
def named_sources(spark: SparkSession) -> Iterator[None]:
    """Have Spark know sources by their names."""
    name = "spark.sql.streaming.queryEvolution.enableSourceEvolution"
    spark.conf.set(name, "true")
    yield
    spark.conf.unset(name)


@pytest.mark.campaign
@pytest.mark.usefixtures("named_sources")
def test_two_sources_of_a_query_keep_their_own_offsets(
    spark: SparkSession, kafka_server: Kafka, topic: Topic, tmp_path: Path
) -> None:
    """Trap 21: one is idle, and after a restart they come in another order, known by name."""
    other = Topic(kafka_server, f"{topic.name}-other", partitions=3)
    frames = [frame_of(spark, topic, "ones"), frame_of(spark, other, "others")]
    sink = Sink(frames[0].union(frames[1]), tmp_path)
    topic.send(40)
    sink.run()
    assert sink.rows == topic.expected
    sink.frame = frames[1].union(frames[0])
    topic.send(20)
    other.send(30)
    sink.run()
    assert sink.rows == sorted(topic.expected + other.expected)
    until_acked(topic)
    until_acked(other)
