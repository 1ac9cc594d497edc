"""Metrics of Spark's queries and of feeds, beside those of consumers; no Spark."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from consumer_sdk import telemetry
from consumer_sdk.errors import ConfigurationError
from consumer_sdk.spark_bridge import SourceMetrics, SparkFeed
from consumer_sdk.spark_bridge.feed.files import PosixFiles
from consumer_sdk.spark_bridge.feed.reader_marks import ReaderMark
from consumer_sdk.telemetry.model import METRICS, Measured, collected, grouped
from tests.runtime.bench import Bench, bench
from tests.spark_bridge.feeding import messages
from tests.spark_bridge.metrics.test_metrics import FOREIGN, Report, Source

Series = dict[str, dict[frozenset[tuple[str, str]], float]]

NOW = 1000.0
ORDERS = {"system": "kafka", "group": "g", "stream": "orders", "source": "0", "query": "orders"}


def source(
    read: dict[str, int],
    ends: dict[str, int] | None = None,
    *,
    rows: int = 10,
    stream: str = "orders",
    **more: Any,
) -> Source:
    """What Spark says of a pull from Kafka; ``ends`` None where it has no latest offset."""
    origin = {"broker": "kafka", "group": "g", "waiting": {}}
    latest = None if ends is None else json.dumps({**_offset(stream, ends), **origin, **more})
    return Source(json.dumps(_offset(stream, read)), latest or "null", rows)


def _offset(stream: str, places: dict[str, int]) -> dict[str, Any]:
    return {"version": 1, "positions": {stream: {id_: str(at) for id_, at in places.items()}}}


def watched(*reports: Report) -> SourceMetrics:
    """What heard of them."""
    metrics = SourceMetrics(clock=lambda: NOW)
    for report in reports:
        metrics.progress(report)
    return metrics


def scraped(*of: Any) -> Series:
    """Name → labels → value; a set of labels that is there twice fails."""
    registry = CollectorRegistry()
    registry.register(telemetry.collector(*of))
    found: Series = {}
    for family in text_string_to_metric_families(generate_latest(registry).decode()):
        for sample in family.samples:
            labels = key(**sample.labels)
            values = found.setdefault(sample.name, {})
            assert labels not in values, sample
            values[labels] = sample.value
    return found


def key(**labels: str) -> frozenset[tuple[str, str]]:
    """Labels, without those that are empty, which to Prometheus are none."""
    return frozenset((name, text) for name, text in labels.items() if text)


QUERY = key(query="orders")


def partition(id_: str) -> frozenset[tuple[str, str]]:
    """The labels of one partition of the query's source."""
    return key(**ORDERS, partition=id_)


def test_query_has_the_metrics_of_a_consumer() -> None:
    """Under the same names: deliveries, and the lag of each partition in records and seconds."""
    waiting = {"orders": {"0": NOW - 40}}
    report = Report([source({"0": 5, "1": 7}, {"0": 9, "1": 7}, waiting=waiting)])
    found = scraped(watched(report))
    rows = {key(**ORDERS, operation="receive"): 10}
    assert found["messaging_client_consumed_messages_total"] == rows
    assert found["consumer_sdk_lag"] == {partition("0"): 4, partition("1"): 0}
    assert found["consumer_sdk_lag_seconds"] == {partition("0"): 40, partition("1"): 0}
    assert not any(values for name, values in found.items() if name == "consumer_sdk_ready")


def test_query_has_metrics_of_its_own() -> None:
    """Rates and times are those of the last micro-batch."""
    sizes = {"consumer_sdk_bytes": {"bytes": 70}}
    found = scraped(watched(Report([source({"0": 5}, {"0": 9})], observedMetrics=sizes)))
    own = {name: values for name, values in found.items() if "_spark_" in name}
    assert own == {
        "consumer_sdk_spark_active": {QUERY: 1},
        "consumer_sdk_spark_failures_total": {QUERY: 0},
        "consumer_sdk_spark_batches_total": {QUERY: 1},
        "consumer_sdk_spark_bytes_total": {QUERY: 70},
        "consumer_sdk_spark_batch_duration_seconds": {QUERY: 0.25},
        "consumer_sdk_spark_input_rate": {QUERY: 100},
        "consumer_sdk_spark_processing_rate": {QUERY: 200},
        "consumer_sdk_spark_report_age_seconds": {QUERY: 0},
    }


def test_opentelemetry_reads_the_same_of_a_query() -> None:
    """With the attributes of the conventions; from one call, and from a later one."""
    reader = InMemoryMetricReader()
    provider = MeterProvider([reader])
    telemetry.otel(watched(Report([source({"0": 5}, {"0": 9})])), provider=provider)
    other = watched(Report([source({"0": 2}, {"0": 9})], id="q2", name="other"))
    telemetry.otel(other, other, provider=provider)
    found = points(reader)
    ours = {
        "messaging.system": "kafka",
        "messaging.consumer.group.name": "g",
        "messaging.destination.name": "orders",
        "messaging.destination.partition.id": "0",
        "consumer_sdk.spark.source": "0",
    }
    assert found["consumer_sdk.lag"] == [
        ({**ours, "consumer_sdk.spark.query": "orders"}, 4),
        ({**ours, "consumer_sdk.spark.query": "other"}, 7),
    ]
    assert [n for _, n in found["messaging.client.consumed.messages"]] == [10, 10]
    assert "consumer_sdk.settled" not in found


def points(reader: InMemoryMetricReader) -> dict[str, list[tuple[dict[str, Any], float]]]:
    """Name → attributes and values."""
    data = reader.get_metrics_data()
    assert data is not None
    (scope,) = data.resource_metrics[0].scope_metrics
    found: dict[str, list[tuple[dict[str, Any], float]]] = {}
    for metric in scope.metrics:
        read: Any = metric.data.data_points
        found[metric.name] = [(dict(point.attributes), point.value) for point in read]
    return found


def test_consumers_queries_and_feeds_share_a_collector(tmp_path: Path) -> None:
    """Each series is there once, though the query reads what the consumer reads."""

    async def test(b: Bench) -> None:
        b.append("1", "2")
        reading = source({"0": 5}, {"0": 9}, stream="s", broker="memory")
        queries = watched(Report([reading]))
        async with b.consumer() as consumer:
            (await anext(consumer)).ack()
            found = scraped(consumer, queries, SparkFeed(tmp_path), consumer, queries)
            ours = key(system="memory", group="g", stream="s", partition="0")
            query = key(**{**ORDERS, "system": "memory", "stream": "s"}, partition="0")
            assert found["consumer_sdk_settled_total"] == {ours: 1}
            assert found["consumer_sdk_lag"][query] == 4
            assert found["consumer_sdk_feed_written_total"] == {
                key(system="feed", stream=str(tmp_path)): 0
            }
            received = found["messaging_client_consumed_messages_total"]
            assert len(received) == 2

    bench(test)


def test_consumer_alone_has_no_families_of_spark() -> None:
    """A service without Spark reads nothing of it on its page."""

    async def test(b: Bench) -> None:
        families = {each.name for each in telemetry.collector(b.consumer()).collect()}
        assert "consumer_sdk_ready" in families
        assert not [name for name in families if "spark" in name or "feed" in name]

    bench(test)


def test_queries_on_one_topic_and_group_do_not_collide() -> None:
    """Nor do two sources of one query."""
    one = Report([source({"0": 5}, {"0": 9}), source({"0": 8}, {"0": 9})])
    two = Report([source({"0": 6}, {"0": 9})], id="q2", name="two")
    found = scraped(watched(one, two))
    lag = {
        (dict(labels)["query"], dict(labels)["source"]): n
        for labels, n in found["consumer_sdk_lag"].items()
    }
    assert lag == {("orders", "0"): 4, ("orders", "1"): 1, ("two", "0"): 3}


def test_queries_of_one_name_in_two_sessions_are_counted_together() -> None:
    """Spark keeps names apart in one session alone."""
    one = watched(Report([source({"0": 5}, {"0": 9}, waiting={"orders": {"0": NOW - 5}})]))
    two = watched(Report([source({"0": 6}, {"0": 9}, waiting={"orders": {"0": NOW - 7}})], id="q2"))
    found = scraped(one, two)
    assert found["consumer_sdk_lag"] == {partition("0"): 7}
    assert found["consumer_sdk_lag_seconds"] == {partition("0"): 7}
    assert found["consumer_sdk_spark_active"] == {QUERY: 2}


def test_session_that_is_watched_twice_is_counted_once() -> None:
    """Its queries are the same ones; one that is closed says nothing."""
    report = Report([source({"0": 5}, {"0": 9})])
    closed, one, two = watched(report), watched(report), watched(report)
    closed.close()
    found = scraped(closed, one, two)
    assert found["consumer_sdk_lag"] == {partition("0"): 4}
    assert found["consumer_sdk_spark_batches_total"] == {QUERY: 1}
    assert closed.measured() == ()


@pytest.mark.parametrize("has_failed", [False, True])
def test_gauges_of_a_query_end_with_it(has_failed: bool) -> None:  # noqa: FBT001
    """Nothing is behind for ever because a query was stopped; what it did stays counted."""
    metrics = watched(Report([source({"0": 5}, {"0": 9})]))
    metrics.terminated("q1", "r1", has_failed=has_failed)
    found = {name: values for name, values in scraped(metrics).items() if values}
    assert found == {
        "messaging_client_consumed_messages_total": {key(**ORDERS, operation="receive"): 10},
        "consumer_sdk_spark_active": {QUERY: 0},
        "consumer_sdk_spark_failures_total": {QUERY: has_failed},
        "consumer_sdk_spark_batches_total": {QUERY: 1},
    }


@pytest.mark.parametrize("query_id", ["q1", "q2"])
def test_counters_go_on_when_a_query_is_started_again(query_id: str) -> None:
    """From its checkpoint, or anew under the name of one that has ended."""
    metrics = watched(Report([source({"0": 5}, {"0": 9})]))
    metrics.terminated("q1", "r1", has_failed=True)
    metrics.started(query_id, "r2")
    metrics.progress(Report([source({"0": 8}, {"0": 9}, rows=3)], id=query_id, runId="r2"))
    found = scraped(metrics)
    assert found["messaging_client_consumed_messages_total"] == {
        key(**ORDERS, operation="receive"): 13
    }
    assert found["consumer_sdk_spark_batches_total"] == {QUERY: 2}
    assert found["consumer_sdk_spark_failures_total"] == {QUERY: 1}
    assert found["consumer_sdk_spark_active"] == {QUERY: 1}
    assert found["consumer_sdk_lag"] == {partition("0"): 1}


def test_run_that_has_not_reported_does_not_keep_up() -> None:
    """What the run before had read says nothing of how far behind this one is."""
    metrics = watched(Report([source({"0": 9}, {"0": 9})]))
    assert scraped(metrics)["consumer_sdk_lag"] == {partition("0"): 0}
    metrics.terminated("q1", "r1", has_failed=True)
    metrics.started("q1", "r2")
    found = scraped(metrics)
    assert found["consumer_sdk_spark_active"] == {QUERY: 1}
    assert "consumer_sdk_lag" not in found
    assert "consumer_sdk_lag_seconds" not in found


def test_query_of_the_same_name_on_another_topic_has_series_of_its_own() -> None:
    """What was read of the one is not counted for the other."""
    metrics = watched(Report([source({"0": 5}, {"0": 9})]))
    metrics.terminated("q1", "r1", has_failed=False)
    metrics.progress(
        Report([source({"0": 2}, {"0": 2}, rows=2, stream="new")], id="q2", runId="r2")
    )
    other = {**ORDERS, "stream": "new"}
    assert scraped(metrics)["messaging_client_consumed_messages_total"] == {
        key(**ORDERS, operation="receive"): 10,
        key(**other, operation="receive"): 2,
    }


def test_what_is_not_known_is_left_out() -> None:
    """0 would say that nothing is behind: no latest offset, no number, nobody knows since when."""
    unknown = watched(Report([source({"0": 5})], inputRowsPerSecond=float("nan")))
    found = scraped(unknown)
    assert "consumer_sdk_lag" not in found
    assert "consumer_sdk_lag_seconds" not in found
    assert "consumer_sdk_spark_input_rate" not in found
    assert "consumer_sdk_spark_bytes_total" not in found
    rows = {key(stream="orders", source="0", query="orders", operation="receive"): 10}
    assert found["messaging_client_consumed_messages_total"] == rows
    behind = scraped(watched(Report([source({"0": 5}, {"0": 9})])))
    assert behind["consumer_sdk_lag"] == {partition("0"): 4}
    assert "consumer_sdk_lag_seconds" not in behind


def test_source_of_several_topics_names_none_for_its_rows() -> None:
    """Spark counts rows by source; lag is known by partition."""
    places = {"version": 1, "positions": {"a": {"0": "5"}, "b": {"0": "5"}}}
    latest = {**places, "broker": "pulsar", "group": None}
    found = scraped(watched(Report([Source(json.dumps(places), json.dumps(latest))])))
    (labels,) = found["messaging_client_consumed_messages_total"]
    assert labels == key(system="pulsar", source="0", query="orders", operation="receive")
    streams = {dict(each)["stream"]: n for each, n in found["consumer_sdk_lag"].items()}
    assert streams == {"a": 0, "b": 0}  # at the end, whatever Pulsar's positions are


def test_feed_is_read_in_records() -> None:
    """Its segments are one stream, the directory, and have no partitions."""
    latest = {"next": 4, "broker": "feed", "group": "r", "directory": "/d", "records": 30}
    latest["waiting"] = NOW - 3
    found = scraped(watched(Report([Source('{"next":1,"since":0}', json.dumps(latest))])))
    ours = key(system="feed", group="r", stream="/d", source="0", query="orders")
    assert found["consumer_sdk_lag"] == {ours: 30}
    assert found["consumer_sdk_lag_seconds"] == {ours: 3}
    assert found["messaging_client_consumed_messages_total"] == {
        ours | {("operation", "receive")}: 10
    }


def test_query_without_a_name_or_with_sources_of_others() -> None:
    """Its id stands for its name; sources of others have no series."""
    mixed = Report([Source(FOREIGN, FOREIGN, 7), source({"0": 5}, {"0": 9})], name=None)
    found = scraped(watched(mixed, Report([Source(FOREIGN, FOREIGN)], id="q2", name="other")))
    labels = {**ORDERS, "query": "q1", "source": "1"}
    assert found["consumer_sdk_lag"] == {key(**labels, partition="0"): 4}
    assert found["consumer_sdk_spark_batches_total"] == {key(query="q1"): 1}


def test_report_age_grows_while_spark_says_nothing() -> None:
    """A micro-batch that hangs is not taken for one that keeps up; the lag in seconds grows too."""
    now = [NOW]
    metrics = SourceMetrics(clock=lambda: now[0])
    metrics.progress(Report([source({"0": 5}, {"0": 9}, waiting={"orders": {"0": NOW - 1}})]))
    now[0] += 60
    found = scraped(metrics)
    assert found["consumer_sdk_spark_report_age_seconds"] == {QUERY: 60}
    assert found["consumer_sdk_lag_seconds"] == {partition("0"): 61}
    metrics.idle("q1", "r1")
    assert scraped(metrics)["consumer_sdk_spark_report_age_seconds"] == {QUERY: 0}
    now[0] -= 1000
    assert scraped(metrics)["consumer_sdk_spark_report_age_seconds"] == {QUERY: 0}


EVENT = st.tuples(
    st.sampled_from(["started", "progress", "idle", "failed", "stopped"]),
    st.sampled_from(["q1", "q2", "q3"]),
    st.integers(0, 3),
    st.booleans(),
)


@given(st.lists(EVENT, max_size=40))
def test_counters_never_fall_whatever_is_told_in_whatever_order(
    events: list[tuple[str, str, int, bool]],
) -> None:
    """And each series is there once; two of the queries have one name."""
    metrics, last = SourceMetrics(clock=lambda: NOW), dict[Any, float]()
    for kind, query, run, is_known in events:
        tell(metrics, kind, query, f"{query}-{run}", is_known=is_known)
        now = counters(metrics)
        assert all(now[series] >= value for series, value in last.items())
        last = now


def tell(metrics: SourceMetrics, kind: str, query: str, run: str, *, is_known: bool) -> None:
    """What the listener does."""
    if kind == "progress":
        reading = source({"0": 5}, {"0": 9} if is_known else None)
        name = "one" if query == "q3" else "two"
        metrics.progress(Report([reading], id=query, runId=run, name=name))
    elif kind == "started":
        metrics.started(query, run)
    elif kind == "idle":
        metrics.idle(query, run)
    else:
        metrics.terminated(query, run, has_failed=kind == "failed")


def counters(metrics: SourceMetrics) -> dict[Any, float]:
    """(name, labels) → value; twice the same fails."""
    found: dict[Any, float] = {}
    for metric in METRICS:
        for labels, value in collected(metric, grouped(metrics.measured())):
            series = metric.name, tuple(labels.items())
            assert series not in found
            assert not isinstance(value, tuple)
            found[series] = float(value)
    kinds = {metric.name: metric.kind for metric in METRICS}
    return {series: n for series, n in found.items() if kinds[series[0]] == "counter"}


def test_counters_do_not_fall_when_ended_queries_are_forgotten() -> None:
    """Those of a name are kept for as long as one of its queries is known."""
    metrics = watched(Report([source({"0": 1}, {"0": 1})], id="first", name="nightly"))
    for number in range(150):
        run = f"r{number}"
        metrics.progress(Report([source({"0": 1}, {"0": 1})], id=run, runId=run, name="nightly"))
        metrics.terminated(run, run, has_failed=False)
    found = scraped(metrics)
    assert found["consumer_sdk_spark_batches_total"] == {key(query="nightly"): 151}
    assert found["consumer_sdk_spark_active"] == {key(query="nightly"): 1}  # the first one runs
    for number in range(101):
        run = f"s{number}"
        metrics.progress(Report([source({"0": 1}, {"0": 1})], id=run, runId=run, name=run))
        metrics.terminated(run, run, has_failed=False)
    assert len(metrics._counts) == 101


def test_reports_and_scrapes_come_in_threads_of_their_own() -> None:
    """Whoever scrapes sees each report as a whole or not at all."""
    metrics, done = SourceMetrics(clock=lambda: NOW), threading.Event()

    def report() -> None:
        for number in range(400):
            name = f"q{number % 7}"
            metrics.progress(Report([source({"0": 5}, {"0": 9}, rows=1)], id=name, name=name))
            if number % 3 == 0:
                metrics.terminated(name, "r1", has_failed=False)
        done.set()

    thread = threading.Thread(target=report)
    thread.start()
    last: dict[Any, float] = {}
    while not done.is_set():
        now = counters(metrics)
        assert all(now[series] >= value for series, value in last.items())
        last = now
    thread.join()
    rows = [n for (name, _), n in counters(metrics).items() if name.startswith("messaging")]
    assert sum(rows) == 400


# -- the feed's writer ----------------------------------------------------------------------


async def test_feed_tells_its_backlog(tmp_path: Path) -> None:
    """Records, bytes, segments and age of what Spark has not committed; nothing for each record."""
    feed, ours = (
        SparkFeed(tmp_path, max_wait=0.0, max_rows=10),
        key(system="feed", stream=str(tmp_path)),
    )
    registry = [feed]
    assert scraped(*registry)["consumer_sdk_feed_written_total"] == {ours: 0}
    assert "consumer_sdk_feed_backlog" not in scraped(*registry)
    async with feed:
        assert "consumer_sdk_feed_segment_age_seconds" not in scraped(feed)  # there is none
        for first in (0, 10, 5):
            await feed.write(messages(first, first + 9))
        found = await asyncio.to_thread(scraped, feed)
        stats = feed.stats()
        gauges = {
            "backlog": 20,
            "backlog_bytes": stats.backlog_bytes,
            "backlog_segments": 2,
            "segments": 2,
            "pending": 0,
            "full": 0,
        }
        for name, value in gauges.items():
            assert found[f"consumer_sdk_feed_{name}"] == {ours: value}
        assert found["consumer_sdk_feed_written_total"] == {ours: 20}
        assert found["consumer_sdk_feed_dropped_total"] == {ours: 10}
        assert found["consumer_sdk_feed_backlog_age_seconds"][ours] >= 0
        assert found["consumer_sdk_feed_segment_age_seconds"][ours] >= 0
        ReaderMark(PosixFiles(tmp_path), "query").move(2)
        await feed._in_thread(feed._writer.collect_garbage)
        found = scraped(feed)
        assert found["consumer_sdk_feed_backlog"] == {ours: 0}
        assert found["consumer_sdk_feed_backlog_age_seconds"] == {ours: 0}
    found = scraped(feed)
    assert found["consumer_sdk_feed_written_total"] == {ours: 20}
    assert "consumer_sdk_feed_backlog" not in found  # nobody looks any more


async def test_writers_of_one_directory_do_not_count_its_backlog_twice(tmp_path: Path) -> None:
    """What each wrote is added; what both look at is what it is."""
    ours = key(system="feed", stream=str(tmp_path))
    async with SparkFeed(tmp_path, max_wait=0.0) as one, SparkFeed(tmp_path, max_wait=0.0) as two:
        await one.write(messages(0, 9))
        await two.write(messages(10, 14))  # which reads what the other one has written
        found = scraped(one, two)
        assert found["consumer_sdk_feed_written_total"] == {ours: 15}
        assert found["consumer_sdk_feed_backlog"] == {ours: 15}
        assert found["consumer_sdk_feed_segments"] == {ours: 2}
        reader = InMemoryMetricReader()
        telemetry.otel(one, two, provider=MeterProvider([reader]))
        place = {"messaging.system": "feed", "messaging.destination.name": str(tmp_path)}
        assert points(reader)["consumer_sdk.feed.backlog"] == [(place, 15)]


@pytest.mark.parametrize("make", [telemetry.collector, telemetry.otel])
@pytest.mark.parametrize("wrong", [SparkFeed, SourceMetrics, None, [SourceMetrics()]])
def test_what_cannot_be_measured_is_refused(make: Any, wrong: object) -> None:
    """The class in place of an object, for one."""
    with pytest.raises(
        ConfigurationError, match=r"what spark_bridge\.watch returns, or a SparkFeed"
    ):
        make(wrong)


def test_what_is_measured_is_known_by_its_form(tmp_path: Path) -> None:
    """For type checkers, and at run time."""
    measured: Iterable[Measured] = SourceMetrics(), SparkFeed(tmp_path)
    assert all(isinstance(each, Measured) for each in measured)
