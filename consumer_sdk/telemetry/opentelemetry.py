"""Observable instruments of OpenTelemetry, read from snapshots when they are collected."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any
from weakref import WeakKeyDictionary

from consumer_sdk.errors import MissingExtraError
from consumer_sdk.runtime import Consumer, HistogramSnapshot
from consumer_sdk.telemetry.metric import Metric
from consumer_sdk.telemetry.model import (
    ATTRIBUTES,
    METRICS,
    SCHEMA_URL,
    Measured,
    Seen,
    collected,
    grouped,
)
from consumer_sdk.telemetry.sampling import looks_at

try:
    from opentelemetry import metrics
    from opentelemetry.metrics import CallbackOptions, Meter, MeterProvider, Observation
except ImportError as _error:
    raise MissingExtraError("opentelemetry", "otel") from _error

__all__ = ["otel"]

Observe = Callable[[CallbackOptions], Iterable[Observation]]
Looks = dict[object, Callable[[], Iterable[Seen]]]

_looks: WeakKeyDictionary[MeterProvider, Looks] = WeakKeyDictionary()
"""A provider drops, without a word, what a second instrument of one name observes. So each has one
set of instruments, and all that it was given to look at."""


def otel(*consumers: Consumer | Measured, provider: MeterProvider | None = None) -> None:
    """Makes OpenTelemetry's instruments for consumers: one for each of `METRICS`.

    They are observable: a collection, in any thread, takes one snapshot in the consumer's event
    loop. Handling a record updates no metric. OpenTelemetry has no observable histogram, so a histogram is
    three counters: ``….count``, ``….sum`` and ``….bucket`` with the attribute ``le``.

    Args:
        consumers: not yet closed; they may be opened later. Those of one group are counted together,
            also with those of earlier calls. Also the results of `spark_bridge.watch`, and
            `SparkFeed` objects.
        provider: the meter provider; the global one if None.

    Raises:
        MissingExtraError: the extra ``otel`` is not installed.
        ConfigurationError: an argument is none of these.
    """
    given = looks_at(consumers, "otel")
    meters = provider or metrics.get_meter_provider()
    looks = _looks.get(meters)
    if looks is None:
        looks = _looks[meters] = {}
        meter = meters.get_meter("consumer_sdk", schema_url=SCHEMA_URL)
        for metric in METRICS:
            _register(meter, metric, looks)
    for each, look in given.items():
        looks.setdefault(each, look)


def _register(meter: Meter, metric: Metric, looks: Looks) -> None:
    name, unit, text = metric.name, metric.unit, metric.description
    if metric.kind == "gauge":
        meter.create_observable_gauge(name, [_observer(metric, looks)], unit, text)
    elif metric.kind == "counter":
        meter.create_observable_counter(name, [_observer(metric, looks)], unit, text)
    else:
        parts = {"count": (_count, "1"), "sum": (_sum, unit), "bucket": (_buckets, "1")}
        for part, (split, of) in parts.items():
            observer = _observer(metric, looks, split)
            meter.create_observable_counter(f"{name}.{part}", [observer], of, text)


def _observer(metric: Metric, looks: Looks, split: Any = None) -> Observe:
    split = split or _value

    def observe(_options: CallbackOptions) -> Iterator[Observation]:
        seen = (each for look in list(looks.values()) for each in look())
        read = (each for each in seen if type(each) in metric.readers)
        for labels, value in collected(metric, grouped(read)):
            attributes = {ATTRIBUTES[label]: text for label, text in labels.items() if text}
            yield from split(value, attributes)

    return observe


def _value(value: float, attributes: dict[str, str]) -> Iterator[Observation]:
    yield Observation(value, attributes)


def _count(times: HistogramSnapshot, attributes: dict[str, str]) -> Iterator[Observation]:
    yield Observation(times.total, attributes)


def _sum(times: HistogramSnapshot, attributes: dict[str, str]) -> Iterator[Observation]:
    yield Observation(times.sum, attributes)


def _buckets(times: HistogramSnapshot, attributes: dict[str, str]) -> Iterator[Observation]:
    for bound, total in times.cumulative():
        yield Observation(total, {**attributes, "le": bound})
