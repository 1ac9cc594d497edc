"""Snapshots from reports, without Spark."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from typing import Any

import pytest

from consumer_sdk.records import Partition
from consumer_sdk.spark_bridge.metrics.lag import Origin
from consumer_sdk.spark_bridge.metrics.metrics import SourceMetrics
from consumer_sdk.spark_bridge.metrics.query_stats import QueryStats

FOREIGN = '{"orders":{"0":41}}'


def pull(**places: int) -> str:
    """An offset of the pull source; ``p0=41`` is partition 0."""
    texts = ",".join(f'"{name[1:]}":"{place}"' for name, place in places.items())
    return f'{{"version":1,"positions":{{"orders":{{{texts}}}}}}}'


@dataclass
class Source:
    """Spark's ``SourceProgress``."""

    endOffset: str  # noqa: N815 - Spark's
    latestOffset: str  # noqa: N815 - Spark's
    numInputRows: int = 10  # noqa: N815 - Spark's
    description: str = "a source"


@dataclass
class Report:
    """Spark's ``StreamingQueryProgress``."""

    sources: list[Source]
    id: str = "q1"
    runId: str = "r1"  # noqa: N815 - Spark's
    name: str | None = "orders"
    batchId: int = 0  # noqa: N815 - Spark's
    timestamp: str = "2026-01-01T00:00:00.000Z"
    durationMs: dict[str, int] = field(default_factory=lambda: {"triggerExecution": 250})  # noqa: N815 - Spark's
    inputRowsPerSecond: float = 100.0  # noqa: N815 - Spark's
    processedRowsPerSecond: float = 200.0  # noqa: N815 - Spark's
    observedMetrics: dict[str, Any] = field(default_factory=dict)  # noqa: N815 - Spark's


def only(metrics: SourceMetrics) -> QueryStats:
    """The snapshot of the one query."""
    (found,) = metrics.stats()
    return found


def test_reports_of_a_run_add_up() -> None:
    """Rows, bytes and batches grow; rates, times and lag are those of the last report."""
    metrics = SourceMetrics()
    bytes_of = {"consumer_sdk_bytes": {"bytes": 70}, "consumer_sdk_bytes:b": {"bytes": 5}}
    metrics.progress(Report([Source(pull(p0=5, p1=5), pull(p0=9, p1=6))], observedMetrics=bytes_of))
    bytes_of = {"consumer_sdk_bytes": {"bytes": 7}, "mine": {"count": 3}}
    last = Source(pull(p0=8, p1=6), pull(p0=9, p1=6), numInputRows=4)
    metrics.progress(Report([last], batchId=1, observedMetrics=bytes_of))
    found = only(metrics)
    assert (found.batch, found.batches, found.rows, found.bytes) == (1, 2, 14, 82)
    assert (found.rows_per_second, found.processed_rows_per_second) == (100.0, 200.0)
    assert (found.batch_seconds, found.is_active, found.is_idle) == (0.25, True, False)
    (source,) = found.sources
    assert source.lag.behind == {Partition("orders", "0"): 1, Partition("orders", "1"): 0}
    assert (source.lag.least, source.lag.most, source.lag.average) == (0, 1, 0.5)


def test_bytes_are_unknown_until_somebody_counts_them() -> None:
    """None is not 0."""
    metrics = SourceMetrics()
    metrics.progress(Report([Source(pull(p0=5), pull(p0=9))]))
    assert only(metrics).bytes is None


def test_a_restarted_query_counts_anew() -> None:
    """Counts are of a run; the query stays the same one."""
    metrics = SourceMetrics()
    metrics.progress(Report([Source(pull(p0=5), pull(p0=9))]))
    metrics.progress(Report([Source(pull(p0=6), pull(p0=9), numInputRows=1)], runId="r2"))
    assert (only(metrics).rows, only(metrics).batches) == (1, 1)


def test_sources_of_others_are_passed_over() -> None:
    """A query without a source of the bridge is ignored, and the others keep their places."""
    metrics = SourceMetrics()
    metrics.progress(Report([Source(FOREIGN, FOREIGN)], id="foreign"))
    mixed = [Source(FOREIGN, FOREIGN, 7), Source('{"next":2}', '{"next":5}', 3), Source(pull(), "")]
    metrics.progress(Report(mixed))
    found = only(metrics)
    assert [(each.index, each.rows, each.lag.total) for each in found.sources] == [
        (1, 3, 3),
        (2, 10, None),
    ]
    assert found.rows == 13


def test_an_idle_query_keeps_its_counts_and_has_no_rate() -> None:
    """Nothing came in; what was read was read."""
    metrics = SourceMetrics()
    metrics.idle("q1", "r1")  # of a query that has not reported: nothing to tell
    assert metrics.stats() == ()
    metrics.progress(Report([Source(pull(p0=9), pull(p0=9))]))
    metrics.idle("q1", "r1")
    found = only(metrics)
    assert (found.is_idle, found.rows, found.rows_per_second) == (True, 10, 0.0)
    metrics.progress(Report([Source(pull(p0=9), pull(p0=9))]))
    assert not only(metrics).is_idle


def test_a_run_that_begins_is_not_the_one_that_failed() -> None:
    """It is active and has read nothing, and what is said of the run before changes nothing."""
    metrics = SourceMetrics()
    metrics.started("q1", "r1")  # whose source it has is not known yet
    assert metrics.stats() == ()
    metrics.progress(Report([Source(pull(p0=9), pull(p0=9))]))
    metrics.terminated("q1", "r1", has_failed=True)
    metrics.idle("q1", "r2")
    assert (only(metrics).has_failed, only(metrics).run_id) == (True, "r1")
    metrics.started("q1", "r2")
    found = only(metrics)
    assert (found.run_id, found.is_active, found.has_failed) == ("r2", True, False)
    assert (found.rows, found.batches, found.sources[0].rows) == (0, 0, 0)
    metrics.idle("q1", "r1")
    assert not only(metrics).is_idle
    metrics.terminated("q1", "r2", has_failed=True)
    assert only(metrics).has_failed


def test_an_ended_query_stays_to_be_looked_at_and_not_for_ever() -> None:
    """The last hundred that ended are kept, and all that run."""
    metrics = SourceMetrics()
    metrics.progress(Report([Source(pull(p0=1), pull(p0=1))], id="runs"))
    for number in range(103):
        metrics.progress(Report([Source(pull(p0=1), pull(p0=1))], id=f"q{number}"))
        metrics.terminated(f"q{number}", "r1", has_failed=number % 2 == 1)
    metrics.terminated("never heard of", "r1", has_failed=False)
    found = metrics.stats()
    assert [each.query_id for each in found] == ["runs", *(f"q{at}" for at in range(3, 103))]
    assert [each.is_active for each in found[:2]] == [True, False]
    assert [each.has_failed for each in found[1:3]] == [True, False]


def test_the_late_end_of_an_earlier_run_does_not_end_the_next() -> None:
    """A query that was started again runs, whatever is still told of its last run."""
    metrics = SourceMetrics()
    metrics.progress(Report([Source(pull(p0=1), pull(p0=1))], runId="r2"))
    metrics.terminated("q1", "r1", has_failed=True)
    assert (only(metrics).is_active, only(metrics).has_failed) == (True, False)


def test_a_callback_hears_of_everything_and_may_fail(caplog: pytest.LogCaptureFixture) -> None:
    """Its error is logged and counted, and goes no further."""
    heard: list[QueryStats] = []

    def callback(stats: QueryStats) -> None:
        heard.append(stats)
        raise RuntimeError("the sink is away")

    metrics = SourceMetrics(callback)
    with caplog.at_level(logging.ERROR):
        metrics.progress(Report([Source(pull(p0=1), pull(p0=1))]))
        metrics.progress(Report([Source(FOREIGN, FOREIGN)], id="foreign"))
        metrics.idle("q1", "r1")
        metrics.terminated("q1", "r1", has_failed=True)
    assert [(each.is_idle, each.is_active) for each in heard] == [
        (False, True),
        (True, True),
        (True, False),
    ]
    assert metrics.callback_errors == 3
    assert "query orders failed" in caplog.text


def test_what_a_source_reads_from_is_kept() -> None:
    """Also over a micro-batch that is repeated after a restart, whose report does not say it."""
    metrics = SourceMetrics()
    latest = '{"version":1,"positions":{"orders":{"0":"9"}},"broker":"kafka","group":"g"}'
    metrics.progress(Report([Source(pull(p0=5), latest)]))
    assert only(metrics).sources[0].origin == Origin("kafka", "g")
    metrics.progress(Report([Source(pull(p0=6), "null")], runId="r2"))
    assert only(metrics).sources[0].origin == Origin("kafka", "g")
    assert only(metrics).sources[0].lag.total is None


def test_late_report_brings_no_run_back_to_life() -> None:
    """One of a run that has ended is counted; one of a run that another has followed is not."""
    metrics = SourceMetrics()
    metrics.progress(Report([Source(pull(p0=5), pull(p0=9))]))
    metrics.terminated("q1", "r1", has_failed=True)
    metrics.progress(Report([Source(pull(p0=9), pull(p0=9))]))
    found = only(metrics)
    assert (found.is_active, found.has_failed, found.rows) == (False, True, 20)
    metrics.progress(Report([Source(pull(p0=9), pull(p0=9), 1)], runId="r2"))
    metrics.progress(Report([Source(pull(p0=9), pull(p0=9), 1)]))
    metrics.started("q1", "r1")
    found = only(metrics)
    assert (found.run_id, found.is_active, found.rows) == ("r2", True, 1)
    metrics.started("q1", "r2")  # heard after its first report
    assert only(metrics).rows == 1


def test_runs_that_have_ended_are_not_remembered_for_ever() -> None:
    """A session may start queries for months."""
    metrics = SourceMetrics()
    for number in range(1200):
        metrics.terminated("never heard of", f"r{number}", has_failed=False)
    assert len(metrics._over) == 1000
    assert ("never heard of", "r0") not in metrics._over
