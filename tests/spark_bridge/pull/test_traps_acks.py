"""The last ack of a run that ends by itself."""

from __future__ import annotations

import pytest

pytest.importorskip("pyspark")

from consumer_sdk.records import Outcome
from tests.spark_bridge.pull.memory_ranges import Logs
from tests.spark_bridge.pull.test_stream_reader import Query, clock

__all__ = ["clock"]  # a fixture that each test here uses


def test_the_last_ack_of_a_run_until_now_is_waited_for() -> None:
    """Trap 3: Spark ends the process then; a broker's first ack takes longer than others."""
    logs = Logs.of(10)
    query = Query(logs, startingOffsets="earliest")
    query.reader.prepareForTriggerAvailableNow()
    assert query.batch()
    logs.commit_faults = [Outcome.retry(OSError("the group's coordinator is loading"))] * 2
    assert not query.plan()
    assert query.ack() == {"0": 10}
