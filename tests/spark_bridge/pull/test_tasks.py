"""Claims about tasks: what they open, and how large they are."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

pytest.importorskip("pyspark")

from consumer_sdk.spark_bridge.pull.batch_reader import PullBatchReader
from consumer_sdk.spark_bridge.pull.connections import of_this_process
from consumer_sdk.spark_bridge.pull.offsets import INITIAL
from consumer_sdk.spark_bridge.pull.stream_reader import PullStreamReader
from tests.spark_bridge.pull.memory_ranges import Logs, memory_options


@pytest.fixture
def logs() -> Iterator[Logs]:
    """Return logs that are read in the process' own loop."""
    yield Logs.of(11)
    of_this_process().loop.call(of_this_process().connections.aclose(), timeout=5)
    of_this_process().loop.stop()


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
