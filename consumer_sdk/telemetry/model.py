"""The metrics of a consumer: their names, and how they are read from a snapshot; pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from typing import Any, Literal, NamedTuple, TypeAlias

from consumer_sdk.runtime import HistogramSnapshot, PartitionSnapshot, Snapshot

__all__ = [
    "ATTRIBUTES",
    "METRICS",
    "SEMANTIC_CONVENTIONS",
    "Metric",
    "Reading",
    "collected",
    "system",
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
}
"""A label → OpenTelemetry's attribute. Prometheus gets the labels."""

SYSTEMS = {"kinesis": "aws_kinesis"}
"""Brokers that the conventions, or those who use them, call otherwise."""

Labels: TypeAlias = Mapping[str, str]


class Reading(NamedTuple):
    """One value of a metric."""

    labels: Labels
    value: float | HistogramSnapshot


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric.

    Attributes:
        name: as OpenTelemetry has it.
        kind: what it is; a counter never falls while the consumer lives.
        unit: in UCUM, such as ``"s"`` or ``"{message}"``.
        description: one line.
        read: its values in a snapshot, without the labels that all have (system, group).
        labels: those that its values have.
    """

    name: str
    kind: Literal["counter", "gauge", "histogram"]
    unit: str
    description: str
    labels: tuple[str, ...]
    read: Callable[[Snapshot], Iterator[Reading]]


def system(broker: str) -> str:
    """``messaging.system`` of a broker."""
    return SYSTEMS.get(broker, broker)


def collected(metric: Metric, snapshots: Iterable[Snapshot]) -> Iterator[Reading]:
    """The values of some consumers, with the labels that all have, one after another.

    Each set of labels has one value, since whoever collects them would drop another one: those of
    consumers of one group are added.
    """
    groups: dict[tuple[str, str], list[Snapshot]] = {}
    for snapshot in snapshots:
        shared = system(snapshot.broker), snapshot.group or ""
        groups.setdefault(shared, []).append(snapshot)
    for (system_, group), members in groups.items():
        shared_labels = {"system": system_, "group": group}
        readings: Iterable[Reading] = chain.from_iterable(map(metric.read, members))
        if len(members) > 1 or not _is_each_once(members[0]):
            readings = _added(metric, readings)
        for labels, value in readings:
            yield Reading({**shared_labels, **labels}, value)


def _is_each_once(snapshot: Snapshot) -> bool:
    return len({each.partition for each in snapshot.partitions}) == len(snapshot.partitions)


def _added(metric: Metric, readings: Iterable[Reading]) -> Iterator[Reading]:
    found: dict[tuple[tuple[str, str], ...], float | HistogramSnapshot] = {}
    for labels, value in readings:
        key = tuple(labels.items())
        found[key] = _together(metric, found[key], value) if key in found else value
    return (Reading(dict(key), value) for key, value in found.items())


def _together(metric: Metric, one: Any, other: Any) -> float | HistogramSnapshot:
    """The sum, or the worse of two times."""
    if isinstance(one, HistogramSnapshot):
        return one.plus(other)
    is_time = metric.kind == "gauge" and metric.unit == "s"
    return float(max(one, other) if is_time else one + other)


PARTITION = ("stream", "partition")


def _partition(
    name: str,
    kind: Literal["counter", "gauge"],
    unit: str,
    description: str,
    value: Callable[[PartitionSnapshot], float | None],
    **labels: str,
) -> Metric:
    """A metric with a value for each partition; gauges of those that are held."""

    def read(snapshot: Snapshot) -> Iterator[Reading]:
        for each in snapshot.partitions:
            number = value(each) if each.is_held or kind == "counter" else None
            if number is not None:
                stream, id_ = each.partition
                yield Reading({"stream": stream, "partition": id_, **labels}, number)

    return Metric(name, kind, unit, description, (*PARTITION, *labels), read)


def _single(
    name: str,
    kind: Literal["counter", "gauge"],
    unit: str,
    description: str,
    value: Callable[[Snapshot], float],
) -> Metric:
    return Metric(
        name, kind, unit, description, (), lambda snapshot: iter([Reading({}, value(snapshot))])
    )


def _counts(
    name: str, unit: str, description: str, label: str, of: Callable[[Snapshot], Mapping[str, int]]
) -> Metric:
    def read(snapshot: Snapshot) -> Iterator[Reading]:
        return (Reading({label: key}, count) for key, count in of(snapshot).items())

    return Metric(name, "counter", unit, description, (label,), read)


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
        operation="receive",
    ),
    Metric(
        "messaging.process.duration",
        "histogram",
        "s",
        "How long handlers took.",
        ("stream", "operation", "error_type"),
        _handler_times,
    ),
    Metric(
        "messaging.client.operation.duration",
        "histogram",
        "s",
        "How long requests to the broker and the store took.",
        ("operation", "error_type"),
        _request_times,
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
        "consumer_sdk.lag", "gauge", "{message}", "Records behind the end.", lambda p: p.lag
    ),
    _partition(
        "consumer_sdk.lag.seconds",
        "gauge",
        "s",
        "Seconds behind the end; the age of the record fetched last where the broker does not say.",
        lambda p: p.lag_seconds,
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
        _paused,
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
        _assignments,
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
)
"""All of them, in the order in which they are collected."""
