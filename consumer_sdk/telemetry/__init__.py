"""Metrics, traces and logs, for OpenTelemetry, Prometheus and readers of JSON.

Only `traced` is called for each record. Metrics are read when they are collected: from
`Consumer.snapshot`, from Spark's reports of its queries, and from a feed's counters.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from consumer_sdk.lazy import lazy_names
from consumer_sdk.telemetry.logs import JsonFormatter, message_fields
from consumer_sdk.telemetry.metric import Metric

if TYPE_CHECKING:
    from consumer_sdk.telemetry.opentelemetry import otel
    from consumer_sdk.telemetry.prometheus import collector
    from consumer_sdk.telemetry.traces import traced

__all__ = [
    "JsonFormatter",
    "Metric",
    "collector",
    "message_fields",
    "otel",
    "traced",
]

__getattr__ = lazy_names(
    __name__,
    {
        "collector": "consumer_sdk.telemetry.prometheus",
        "otel": "consumer_sdk.telemetry.opentelemetry",
        "traced": "consumer_sdk.telemetry.traces",
    },
)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
