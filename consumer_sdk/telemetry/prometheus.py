"""A collector for prometheus_client, which reads snapshots when it is scraped."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import chain
from typing import Any

from consumer_sdk.errors import MissingExtraError
from consumer_sdk.runtime import Consumer, HistogramSnapshot, Snapshot
from consumer_sdk.telemetry.metric import Metric, Reading
from consumer_sdk.telemetry.model import METRICS, Measured, Seen, collected, grouped
from consumer_sdk.telemetry.sampling import looks_at

try:
    from prometheus_client.core import (
        CounterMetricFamily,
        GaugeMetricFamily,
        HistogramMetricFamily,
    )
    from prometheus_client.metrics_core import Metric as Family
    from prometheus_client.registry import Collector
    from prometheus_client.samples import Sample
except ImportError as _error:
    raise MissingExtraError("prometheus_client", "prometheus") from _error

__all__ = ["collector", "collector_of", "prometheus_name"]

SHARED = ("system", "group")


def collector(*consumers: Consumer | Measured) -> Collector:
    """A collector for a registry of prometheus_client: ``REGISTRY.register(collector(c))``.

    A scrape, in any thread, takes one snapshot in the consumer's event loop. Handling a record
    updates no metric.

    Args:
        consumers: all consumers of the process for this registry, the results of
            `spark_bridge.watch`, and `SparkFeed` objects. The registry refuses a second collector
            with the same names. Consumers of one group are counted together.

    Raises:
        MissingExtraError: the extra ``prometheus`` is not installed.
        ConfigurationError: an argument is none of these.
    """
    looks = looks_at(consumers, "collector").values()
    return collector_of(lambda: chain.from_iterable(look() for look in looks))


def collector_of(read: Callable[[], Iterable[Seen]]) -> Collector:
    """A collector like `collector`, which reads snapshots that somebody else takes.

    Args:
        read: called at each scrape, in its thread.
    """
    return _Collector(read)


def prometheus_name(metric: Metric) -> str:
    """The name of a metric in Prometheus, without the suffixes of counters and histograms."""
    name = metric.name.replace(".", "_")
    is_named = metric.unit != "s" or name.endswith("_seconds")
    return name if is_named else f"{name}_seconds"


class _Collector(Collector):
    def __init__(self, read: Callable[[], Iterable[Seen]]) -> None:
        self._read = read

    def describe(self) -> Iterator[Family]:
        """The names of the metrics only: nothing is read while it is registered."""
        return map(_family, METRICS)

    def collect(self) -> Iterator[Family]:
        seen = list(self._read())
        groups = grouped(seen)
        kinds = {Snapshot, *map(type, seen)}  # a service without Spark hears nothing of it
        for metric in METRICS:
            if kinds.isdisjoint(metric.readers):
                continue
            family = _family(metric)
            read = partial(collected, metric, groups)
            if isinstance(family, HistogramMetricFamily):
                _add_histograms(family, metric, read())
            else:
                suffix = "_total" if metric.kind == "counter" else ""
                samples: Any = _Samples(family.name + suffix, read)  # to prometheus_client a list
                family.samples = samples
            yield family


def _add_histograms(
    family: HistogramMetricFamily, metric: Metric, readings: Iterable[Reading]
) -> None:
    for labels, value in readings:
        assert isinstance(value, HistogramSnapshot)  # noqa: S101 - the model says so
        names = [labels[label] for label in (*SHARED, *metric.labels)]
        family.add_metric(names, list(value.cumulative()), value.sum)


class _Samples(Sequence[Sample]):
    """The samples of a family, each made when it is asked for.

    All of them at once would be a million objects for 10 000 partitions: Python's garbage collector
    would walk through all that the process has, several times, while the event loop waits.
    """

    def __init__(self, name: str, read: Callable[[], Iterator[Reading]]) -> None:
        self._name = name
        self._read = read

    def __iter__(self) -> Iterator[Sample]:
        for labels, value in self._read():
            assert not isinstance(value, HistogramSnapshot)  # noqa: S101 - the model says so
            yield Sample(self._name, dict(labels), value)

    def __len__(self) -> int:
        return sum(1 for _ in self._read())

    def __getitem__(self, at: Any) -> Any:
        return list(self)[at]


KINDS = {
    "counter": CounterMetricFamily,
    "gauge": GaugeMetricFamily,
    "histogram": HistogramMetricFamily,
}


def _family(metric: Metric) -> Family:
    made: Family = KINDS[metric.kind](
        prometheus_name(metric), metric.description, labels=[*SHARED, *metric.labels]
    )
    return made
