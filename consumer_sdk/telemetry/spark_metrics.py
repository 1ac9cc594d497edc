"""The metrics of Spark's queries and of feeds, read from snapshots of the bridge; pure, without Spark."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from consumer_sdk.records import Partition
from consumer_sdk.spark_bridge.feed.stats import FeedStats
from consumer_sdk.spark_bridge.metrics.lag import FEED, Lag
from consumer_sdk.spark_bridge.metrics.query_stats import QuerySnapshot, SourceId
from consumer_sdk.telemetry.metric import Labels, Metric, Reading, Single, system

__all__ = ["SPARK_METRICS", "consumed", "feed_labels", "lag", "lag_seconds"]


def feed_labels(directory: str) -> Labels:
    """What all metrics of a feed's writer have."""
    return {"system": "feed", "group": "", "stream": directory}


def consumed(query: QuerySnapshot) -> Iterator[Reading]:
    """Rows of each source, since the query was watched first."""
    for source, rows in query.counts.rows.items():
        yield Reading({**_source_labels(source), "operation": "receive"}, rows)


def lag(query: QuerySnapshot) -> Iterator[Reading]:
    """Records behind in each partition, after the last micro-batch."""
    return _by_partition(query, lambda found, partition: found.records(partition))


def lag_seconds(query: QuerySnapshot) -> Iterator[Reading]:
    """For how long the first record of each partition waits that was not read."""
    return _by_partition(query, lambda found, partition: found.seconds(partition, query.time))


def _by_partition(
    query: QuerySnapshot, value: Callable[[Lag, Partition], float | None]
) -> Iterator[Reading]:
    for source in query.last.sources if query.is_running else ():
        labels = _source_labels(source.id)
        for partition in source.lag.behind:
            number = value(source.lag, partition)
            if number is not None:
                is_feed = partition == FEED
                place = {"stream": partition.stream, "partition": partition.id}
                yield Reading({**labels, **({"partition": ""} if is_feed else place)}, number)


def _source_labels(source: SourceId) -> Labels:
    origin = source.origin
    return {
        "system": system(origin.broker) if origin else "",
        "group": (origin.group or "") if origin else "",
        "stream": source.stream,
        "source": str(source.index),
    }


_query = Single(QuerySnapshot, ("query",), is_live=lambda query: query.is_running)
_feed = Single(FeedStats, ("stream",), is_live=lambda feed: feed.is_open)

SPARK_METRICS: tuple[Metric, ...] = (
    Metric(
        "consumer_sdk.spark.active",
        "gauge",
        "{query}",
        "1 for a query that runs, 0 for one that has ended.",
        ("query",),
        {QuerySnapshot: lambda query: iter([Reading({}, int(query.is_running))])},
    ),
    _query(
        "consumer_sdk.spark.failures",
        "counter",
        "{run}",
        "Runs of a query that ended with an error.",
        lambda query: query.counts.failures,
    ),
    _query(
        "consumer_sdk.spark.batches",
        "counter",
        "{batch}",
        "Micro-batches.",
        lambda query: query.counts.batches,
    ),
    _query(
        "consumer_sdk.spark.bytes",
        "counter",
        "By",
        "Keys and values read, where count_bytes counts them.",
        lambda query: query.counts.bytes,
    ),
    _query(
        "consumer_sdk.spark.batch.duration",
        "gauge",
        "s",
        "How long the last micro-batch took.",
        lambda query: query.last.batch_seconds,
    ),
    _query(
        "consumer_sdk.spark.input.rate",
        "gauge",
        "{row}/s",
        "Rows a second that came in, in the last micro-batch, from all sources of the query.",
        lambda query: query.last.rows_per_second,
    ),
    _query(
        "consumer_sdk.spark.processing.rate",
        "gauge",
        "{row}/s",
        "Rows a second that the last micro-batch processed.",
        lambda query: query.last.processed_rows_per_second,
    ),
    _query(
        "consumer_sdk.spark.report.age",
        "gauge",
        "s",
        "Since when Spark has not told of the query; a micro-batch that hangs makes it grow.",
        lambda query: max(0.0, query.time - query.last.heard),
    ),
    _feed(
        "consumer_sdk.feed.written",
        "counter",
        "{message}",
        "Records made durable.",
        lambda feed: feed.written,
    ),
    _feed(
        "consumer_sdk.feed.dropped",
        "counter",
        "{message}",
        "Records that the feed had already.",
        lambda feed: feed.dropped,
    ),
    _feed(
        "consumer_sdk.feed.pending",
        "gauge",
        "{message}",
        "Records that wait to be durable.",
        lambda feed: feed.pending,
    ),
    _feed(
        "consumer_sdk.feed.full",
        "gauge",
        "{feed}",
        "1 while records wait for Spark, because the backlog is at its limit.",
        lambda feed: int(feed.is_full),
        is_common=True,
    ),
    _feed(
        "consumer_sdk.feed.segments",
        "gauge",
        "{segment}",
        "Segments in the directory.",
        lambda feed: feed.segments,
        is_common=True,
    ),
    _feed(
        "consumer_sdk.feed.segment.age",
        "gauge",
        "s",
        "Since when no segment was written.",
        lambda feed: feed.segment_age,
    ),
    _feed(
        "consumer_sdk.feed.backlog",
        "gauge",
        "{message}",
        "Records that Spark's readers have not all committed.",
        lambda feed: feed.backlog_rows,
        is_common=True,
    ),
    _feed(
        "consumer_sdk.feed.backlog.bytes",
        "gauge",
        "By",
        "Bytes of their segments.",
        lambda feed: feed.backlog_bytes,
        is_common=True,
    ),
    _feed(
        "consumer_sdk.feed.backlog.segments",
        "gauge",
        "{segment}",
        "Their segments.",
        lambda feed: feed.backlog_segments,
        is_common=True,
    ),
    _feed(
        "consumer_sdk.feed.backlog.age",
        "gauge",
        "s",
        "Since when the first of them is in the feed; 0 where all is committed.",
        lambda feed: feed.backlog_age,
    ),
)
"""All but those that consumers have too."""
