"""All metrics: their names, and how their values are read from snapshots. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any, NamedTuple, Protocol, TypeAlias, runtime_checkable

from consumer_sdk.runtime import HistogramSnapshot, PartitionSnapshot, Snapshot
from consumer_sdk.spark_bridge.feed.stats import FeedStats
from consumer_sdk.spark_bridge.metrics.query_stats import QuerySnapshot
from consumer_sdk.telemetry import spark_metrics as spark
from consumer_sdk.telemetry.metric import Kind, Labels, Metric, Reading, Single, system

__all__ = [
    "ATTRIBUTES",
    "METRICS",
    "SEMANTIC_CONVENTIONS",
    "Measured",
    "Peers",
    "Seen",
    "collected",
    "grouped",
]

SEMANTIC_CONVENTIONS = "1.44.0"
"""The version of OpenTelemetry's semantic conventions that the names of metrics, spans and their
attributes are taken from. The messaging part of it is still in development: a later version may
rename some, and this follows only when it is changed here."""

SCHEMA_URL = f"https://opentelemetry.io/schemas/{SEMANTIC_CONVENTIONS}"

ATTRIBUTES: Mapping[str, str] = {
    "system": "messaging.system",
    "group": "messaging.consumer.group.name",
    "stream": "messaging.destination.name",
    "partition": "messaging.destination.partition.id",
    "operation": "messaging.operation.name",
    "error_type": "error.type",
    "event": "consumer_sdk.event",
    "outcome": "consumer_sdk.outcome",
    "reason": "consumer_sdk.reason",
    "query": "consumer_sdk.spark.query",
    "source": "consumer_sdk.spark.source",
}
"""A label → OpenTelemetry's attribute. Prometheus gets the labels."""

Seen: TypeAlias = Snapshot | QuerySnapshot | FeedStats
"""What values are read of."""


@runtime_checkable
class Measured(Protocol):
    """What tells its numbers in any thread: `SourceMetrics`, `SparkFeed`."""

    def measured(self) -> Iterable[QuerySnapshot | FeedStats]:
        """Its numbers now."""


class Peers(NamedTuple):
    """Consumers of one group, looks at one query, or feeds of one directory: their values are added.

    Attributes:
        labels: those that all its values have.
        is_plain: no two of its values have the same labels.
    """

    labels: Labels
    members: Sequence[Seen]
    is_plain: bool


def grouped(seen: Iterable[Seen]) -> list[Peers]:
    """What was seen, as `collected` takes it: once for all metrics of a collection."""
    groups: dict[tuple[tuple[str, str], ...], dict[object, Seen]] = {}
    for each in seen:
        groups.setdefault(tuple(_shared(each).items()), {}).setdefault(_identity(each), each)
    found = [(dict(shared), [*members.values()]) for shared, members in groups.items()]
    return [
        Peers(labels, members, len(members) == 1 and _is_each_once(members[0]))
        for labels, members in found
    ]


def collected(metric: Metric, groups: Iterable[Peers]) -> Iterator[Reading]:
    """The values of some consumers, queries and feeds, one after another, with all labels.

    Each set of labels has one value, since collectors drop a second one: the values of a group are added.
    """
    for shared, members, is_plain in groups:
        read = metric.readers.get(type(members[0]))
        if read is not None:
            readings = chain.from_iterable(map(read, members))
            for labels, value in readings if is_plain else _added(metric, readings):
                yield Reading({**shared, **labels}, value)


def _shared(seen: Seen) -> Labels:
    """The labels that all its values have."""
    if isinstance(seen, Snapshot):
        return {"system": system(seen.broker), "group": seen.group or ""}
    if isinstance(seen, QuerySnapshot):
        return {"query": seen.last.name}
    return spark.feed_labels(seen.directory)


def _identity(seen: Seen) -> object:
    """What tells it apart: equal for two looks at the same query, since a session may be watched twice."""
    return seen.last.query_id if isinstance(seen, QuerySnapshot) else id(seen)


def _is_each_once(seen: Seen) -> bool:
    if not isinstance(seen, Snapshot):
        return True
    return len({each.partition for each in seen.partitions}) == len(seen.partitions)


def _added(metric: Metric, readings: Iterable[Reading]) -> Iterator[Reading]:
    found: dict[tuple[tuple[str, str], ...], float | HistogramSnapshot] = {}
    for labels, value in readings:
        key = tuple(labels.items())
        found[key] = _together(metric, found[key], value) if key in found else value
    return (Reading(dict(key), value) for key, value in found.items())


def _together(metric: Metric, one: Any, other: Any) -> float | HistogramSnapshot:
    """Two values as one: the sum, or the larger of two times, or of two looks at the same thing."""
    if isinstance(one, HistogramSnapshot):
        return one.plus(other)
    is_time = metric.kind == "gauge" and metric.unit == "s"
    return float(max(one, other) if is_time or metric.is_common else one + other)


PARTITION = ("stream", "partition")


def _partition(
    name: str,
    kind: Kind,
    unit: str,
    description: str,
    value: Callable[[PartitionSnapshot], float | None],
    *,
    query: Callable[[QuerySnapshot], Iterator[Reading]] | None = None,
    **labels: str,
) -> Metric:
    """A metric with a value for each partition; gauges of those that are held.

    Args:
        query: reads the same of a query.
    """

    def read(snapshot: Snapshot) -> Iterator[Reading]:
        for each in snapshot.partitions:
            number = value(each) if each.is_held or kind == "counter" else None
            if number is not None:
                stream, id_ = each.partition
                yield Reading({"stream": stream, "partition": id_, **labels}, number)

    if query is None:
        return Metric(name, kind, unit, description, (*PARTITION, *labels), {Snapshot: read})
    names = (*PARTITION, *labels, "query", "source")
    return Metric(name, kind, unit, description, names, {Snapshot: read, QuerySnapshot: query})


_single = Single(Snapshot)


def _counts(
    name: str, unit: str, description: str, label: str, of: Callable[[Snapshot], Mapping[str, int]]
) -> Metric:
    def read(snapshot: Snapshot) -> Iterator[Reading]:
        return (Reading({label: key}, count) for key, count in of(snapshot).items())

    return Metric(name, "counter", unit, description, (label,), {Snapshot: read})


def _paused(snapshot: Snapshot) -> Iterator[Reading]:
    for each in snapshot.partitions:
        if each.paused is not None:
            stream, id_ = each.partition
            yield Reading({"stream": stream, "partition": id_, "reason": each.paused}, 1)


def _assignments(snapshot: Snapshot) -> Iterator[Reading]:
    for each in snapshot.partitions:
        stream, id_ = each.partition
        counts = {"assigned": each.assigned, "revoked": each.revoked, "lost": each.lost}
        for event, count in counts.items():
            yield Reading({"stream": stream, "partition": id_, "event": event}, count)


def _handler_times(snapshot: Snapshot) -> Iterator[Reading]:
    for (stream, error), times in snapshot.handler_times.items():
        labels = {"stream": stream, "operation": "process", "error_type": error or ""}
        yield Reading(labels, times)


def _request_times(snapshot: Snapshot) -> Iterator[Reading]:
    for (operation, error), times in snapshot.request_times.items():
        yield Reading({"operation": operation, "error_type": error or ""}, times)


METRICS: tuple[Metric, ...] = (
    _partition(
        "messaging.client.consumed.messages",
        "counter",
        "{message}",
        "Deliveries to the application: records fetched, and retries.",
        lambda p: p.fetched + p.redelivered,
        query=spark.consumed,
        operation="receive",
    ),
    Metric(
        "messaging.process.duration",
        "histogram",
        "s",
        "How long handlers took.",
        ("stream", "operation", "error_type"),
        {Snapshot: _handler_times},
    ),
    Metric(
        "messaging.client.operation.duration",
        "histogram",
        "s",
        "How long requests to the broker and the store took.",
        ("operation", "error_type"),
        {Snapshot: _request_times},
    ),
    _partition(
        "consumer_sdk.settled", "counter", "{message}", "Records settled.", lambda p: p.settled
    ),
    _partition(
        "consumer_sdk.failed", "counter", "{message}", "Deliveries that failed.", lambda p: p.failed
    ),
    _partition(
        "consumer_sdk.redelivered", "counter", "{message}", "Retries.", lambda p: p.redelivered
    ),
    _partition(
        "consumer_sdk.suppressed",
        "counter",
        "{message}",
        "Records that came again although they were settled or known.",
        lambda p: p.suppressed,
    ),
    _counts(
        "consumer_sdk.dead_lettered",
        "{message}",
        "Records whose dead letter is durable.",
        "error_type",
        lambda snapshot: snapshot.dead_letters,
    ),
    _partition(
        "consumer_sdk.lag",
        "gauge",
        "{message}",
        "Records behind the end.",
        lambda p: p.lag,
        query=spark.lag,
    ),
    _partition(
        "consumer_sdk.lag.seconds",
        "gauge",
        "s",
        "Seconds behind the end; the age of the record fetched last where the broker does not say.",
        lambda p: p.lag_seconds,
        query=spark.lag_seconds,
    ),
    _partition(
        "consumer_sdk.in_flight", "gauge", "{message}", "Records unsettled.", lambda p: p.in_flight
    ),
    _partition(
        "consumer_sdk.bytes", "gauge", "By", "Their bytes, estimated.", lambda p: p.in_flight_bytes
    ),
    _partition(
        "consumer_sdk.retrying",
        "gauge",
        "{message}",
        "Records that wait for their next delivery.",
        lambda p: p.retrying,
    ),
    _partition(
        "consumer_sdk.holes",
        "gauge",
        "{hole}",
        "Unsettled stretches below settled records.",
        lambda p: p.holes,
    ),
    _partition(
        "consumer_sdk.pinned.age",
        "gauge",
        "s",
        "Since when the first unsettled record holds the position; 0 where nothing is unsettled.",
        lambda p: 0.0 if p.pinned is None else p.pinned.age,
    ),
    Metric(
        "consumer_sdk.paused",
        "gauge",
        "{partition}",
        "1 for a partition that is not fetched, with the reason.",
        (*PARTITION, "reason"),
        {Snapshot: _paused},
    ),
    _single(
        "consumer_sdk.handlers", "gauge", "{handler}", "Handlers that run.", lambda s: s.handlers
    ),
    _single(
        "consumer_sdk.handlers.limit",
        "gauge",
        "{handler}",
        "Handlers that may run at once.",
        lambda s: s.handlers_limit,
    ),
    _single(
        "consumer_sdk.ready",
        "gauge",
        "{consumer}",
        "Consumers that are open and have joined.",
        lambda s: int(s.health.ready) if s.ready_workers is None else s.ready_workers,
    ),
    _single(
        "consumer_sdk.loop.lag",
        "gauge",
        "s",
        "By how much the event loop was late.",
        lambda s: s.loop_lag,
    ),
    Metric(
        "consumer_sdk.assignments",
        "counter",
        "{assignment}",
        "Times that a partition was assigned, revoked, or lost without a last flush.",
        (*PARTITION, "event"),
        {Snapshot: _assignments},
    ),
    _counts(
        "consumer_sdk.flushes",
        "{flush}",
        "Flushed partitions by outcome: durable, sent, retry, fenced.",
        "outcome",
        lambda snapshot: snapshot.flushes,
    ),
    _single(
        "consumer_sdk.lost.positions",
        "counter",
        "{message}",
        "Positions skipped at a start.",
        lambda s: s.stats.lost,
    ),
    _single(
        "consumer_sdk.resets",
        "counter",
        "{reset}",
        "Starts at a position that another program had set.",
        lambda s: s.stats.resets,
    ),
    _single(
        "consumer_sdk.truncated",
        "counter",
        "{checkpoint}",
        "Checkpoints that did not fit as a whole, each flush of a partition.",
        lambda s: s.stats.truncated,
    ),
    *spark.SPARK_METRICS,
)
"""All of them, in the order in which they are collected."""
