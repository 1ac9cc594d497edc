"""Claims about tasks: what they open, and how large they are."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

pytest.importorskip("pyspark")

from consumer_sdk.errors import ConfigurationError
from consumer_sdk.spark_bridge.errors import DataLossError
from consumer_sdk.spark_bridge.pull.batch_reader import PullBatchReader
from consumer_sdk.spark_bridge.pull.connections import of_this_process
from consumer_sdk.spark_bridge.pull.planning.offsets import INITIAL
from consumer_sdk.spark_bridge.pull.reading import Ranges
from consumer_sdk.spark_bridge.pull.stream_reader import PullStreamReader
from tests.spark_bridge.pull.memory_ranges import Logs, memory_options


@pytest.fixture
def logs() -> Iterator[Logs]:
    """Return logs that are read in the process' own loop."""
    yield Logs.of(11)
    of_this_process().loop.call(of_this_process().connections.aclose(), timeout=300)
    of_this_process().loop.stop()


def sizes(count: int, **options: Any) -> list[int]:
    """Return how many records each task of a batch query has."""
    reader = PullBatchReader(memory_options(Logs.of(count), **options))
    tasks = [task.ranges for task in reader.partitions() if isinstance(task, Ranges)]
    return sorted(sum(each.stop - each.start for each in ranges) for ranges in tasks)


def test_a_task_of_a_stream_opens_a_reader_without_the_group(logs: Logs) -> None:
    """A group's subscriptions, and topics that are not its own, are not for a task to see to."""
    reader = PullStreamReader(memory_options(logs, startingOffsets="earliest"))
    end = reader.latestOffset(INITIAL)
    (task,) = reader.partitions(INITIAL, end)
    assert sum(batch.num_rows for batch in reader.read(task)) == 11
    assert logs.openers == ["g", None]


def test_a_task_of_a_batch_query_opens_a_reader_without_the_group(logs: Logs) -> None:
    """As a stream's; the next task of the same worker has the same connection."""
    reader = PullBatchReader(memory_options(logs))
    (task,) = reader.partitions()
    for _ in range(2):
        assert sum(batch.num_rows for batch in reader.read(task)) == 11
    assert logs.openers == ["g", None]


ENDS = {"startingOffsets": '{"t":{"0":20,"1":0}}', "endingOffsets": '{"t":{"0":15,"1":3}}'}


@pytest.mark.parametrize("strict", ["true", "false"])
def test_an_end_before_the_start_is_refused(logs: Logs, strict: str) -> None:
    """The options contradict themselves, whatever the broker has."""
    logs.add(0, 20)
    logs.add(1, 5)
    reader = PullBatchReader(memory_options(logs, failOnDataLoss=strict, **ENDS))
    with pytest.raises(ConfigurationError, match=r"t/0 .*20.*15"):
        reader.partitions()


def test_a_start_after_the_last_record_is_a_loss(logs: Logs) -> None:
    """As offsets that were saved, and a topic that was made again since: names both offsets."""
    start = '{"t":{"0":20}}'
    with pytest.raises(DataLossError, match=r"t/0 ends at 11, below 20"):
        PullBatchReader(memory_options(logs, startingOffsets=start)).partitions()
    lenient = memory_options(logs, startingOffsets=start, failOnDataLoss="false")
    assert PullBatchReader(lenient).partitions() == []


@pytest.mark.parametrize(
    "count, most, expected",
    [(11, 4, [3, 4, 4]), (11, 10, [5, 6]), (12, 4, [4, 4, 4]), (3, 4, [3]), (5, 1, [1] * 5)],
)
@pytest.mark.usefixtures("logs")
def test_no_task_is_larger_than_max_records_per_partition(
    count: int, most: int, expected: list[int]
) -> None:
    """What does not divide evenly is spread, and not left to the last task."""
    assert sizes(count, maxRecordsPerPartition=most) == expected


@pytest.mark.usefixtures("logs")
def test_min_partitions_makes_tasks_of_about_one_size() -> None:
    """Of 1999 records, no task out of a thousand has more than two."""
    assert sizes(1999, minPartitions=1000) == [1] + [2] * 999
