"""Where a micro-batch begins and what it may take, also with a Spark that does not say."""

from __future__ import annotations

import pytest

pytest.importorskip("pyspark")

from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

from consumer_sdk.spark_bridge.pull.planning.admission import Limit
from consumer_sdk.spark_bridge.read_limits import NextBatch

FIVE = Limit("max_rows", 5)
ALL = Limit("all")


def test_what_spark_says_holds() -> None:
    """PySpark 4.2: the start and the limit are arguments."""
    batch = NextBatch(lambda: {"n": 0}, FIVE)
    assert batch.asked({"n": 7}, ReadMaxRows(3)) == ({"n": 7}, Limit("max_rows", 3))
    assert batch.asked({"n": 7}, ReadAllAvailable()) == ({"n": 7}, ALL)


def test_a_new_query_of_an_old_spark_takes_everything_first() -> None:
    """It could be an ``availableNow`` run, which has one micro-batch; later ones have the limit."""
    batch = NextBatch(lambda: {"n": 0}, FIVE)
    assert batch.asked(None, None) == ({"n": 0}, ALL)
    batch.answered({"n": 9})
    assert batch.asked(None, None) == ({"n": 9}, FIVE)


def test_a_query_that_an_old_spark_starts_again_goes_on() -> None:
    """Spark tells the end of the last micro-batch by ``partitions``."""
    batch = NextBatch(lambda: {"n": 0}, FIVE)
    batch.planned({"n": 9})
    assert batch.asked(None, None) == ({"n": 9}, ALL)


def test_an_older_batch_that_is_planned_again_takes_no_query_back() -> None:
    """``foreachBatch`` may keep a batch's rows, and count them when later ones have run."""
    batch = NextBatch(lambda: {"n": 0}, FIVE)
    batch.planned({"n": 3})
    for end in (6, 9):
        batch.asked(None, None)
        batch.answered({"n": end})
        batch.planned({"n": end})
    batch.planned({"n": 6})
    assert batch.asked(None, None)[0] == {"n": 9}
