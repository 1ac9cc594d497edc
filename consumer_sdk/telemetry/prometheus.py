"""A collector for prometheus_client, which reads snapshots when it is scraped."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from consumer_sdk.errors import MissingExtraError
from consumer_sdk.options import instance
from consumer_sdk.runtime import Consumer, HistogramSnapshot
from consumer_sdk.telemetry.model import METRICS, Metric, collected
from consumer_sdk.telemetry.sampling import Sampler

try:
    from prometheus_client.core import (
        CounterMetricFamily,
        GaugeMetricFamily,
        HistogramMetricFamily,
    )
    from prometheus_client.metrics_core import Metric as Family
    from prometheus_client.registry import Collector
except ImportError as _error:
    raise MissingExtraError("prometheus_client", "prometheus") from _error

__all__ = ["collector", "prometheus_name"]

CONSUMER = instance(Consumer, "a Consumer")
SHARED = ("system", "group")


def collector(*consumers: Consumer) -> Collector:
    """What a registry of prometheus_client asks at each scrape: ``REGISTRY.register(collector(c))``.

    A scrape, in whatever thread, takes one snapshot in the consumer's event loop; a record costs
    nothing.

    Args:
        consumers: all consumers of the process that this registry tells of; a second collector
            with the same names would be refused. Those of one group are counted together.

    Raises:
        MissingExtraError: the extra ``prometheus`` is not installed.
        ConfigurationError: this is no consumer.
    """
    for consumer in consumers:
        CONSUMER.check("consumer", consumer, "collector")
    return _Collector(consumers)


def prometheus_name(metric: Metric) -> str:
    """The name of a metric in Prometheus, without the suffixes of counters and histograms."""
    name = metric.name.replace(".", "_")
    is_named = metric.unit != "s" or name.endswith("_seconds")
    return name if is_named else f"{name}_seconds"


class _Collector(Collector):
    def __init__(self, consumers: Iterable[Consumer]) -> None:
        self._samplers = [Sampler(consumer) for consumer in consumers]

    def describe(self) -> Iterator[Family]:
        """The names alone: nothing is asked while it is registered."""
        return map(_family, METRICS)

    def collect(self) -> Iterator[Family]:
        snapshots = [each for sampler in self._samplers if (each := sampler.snapshot())]
        for metric in METRICS:
            family = _family(metric)
            for labels, value in collected(metric, snapshots):
                _add(family, [labels[label] for label in (*SHARED, *metric.labels)], value)
            yield family


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


def _add(family: Family, labels: Sequence[str], value: float | HistogramSnapshot) -> None:
    if isinstance(family, HistogramMetricFamily):
        assert isinstance(value, HistogramSnapshot)  # noqa: S101 - the model says so
        family.add_metric(labels, list(value.cumulative()), value.sum)
    else:
        family.add_metric(labels, value)  # type: ignore[attr-defined]  # of both others
