"""The tables of results, for the terminal and for ``docs/performance.md``."""

from __future__ import annotations

import platform
from collections.abc import Callable, Mapping
from importlib.metadata import PackageNotFoundError, version
from os import cpu_count
from typing import Any

from benchmarks import (
    kafka_report,
    latency,
    leases,
    markdown,
    partitions,
    pulsar_tables,
    rebalance,
    share,
    stores,
    telemetry,
    workers,
)
from benchmarks.kafka_contests import AIMS
from benchmarks.kinesis import tables as kinesis
from benchmarks.markdown import figure
from benchmarks.message_cost import LIMIT_US
from benchmarks.process import ROOT
from benchmarks.spark import tables as spark
from benchmarks.trackers.tables import tables

__all__ = ["PAGE", "TABLES", "table", "write"]

PAGE = ROOT / "docs" / "performance.md"
_CLIENTS = ("aiokafka", "faststream", "uvloop")


def table(name: str, result: Mapping[str, Any]) -> str:
    """One benchmark's results in Markdown."""
    return TABLES[name](result)


def write(results: Mapping[str, Mapping[str, Any]]) -> None:
    """Replace the tables of these benchmarks in the page and the pictures beside it.

    The text around the tables stays.
    """
    page = PAGE.read_text(encoding="utf-8")
    for name, result in results.items():
        begin, end = f"<!-- {name}: begin -->", f"<!-- {name}: end -->"
        before, found, rest = page.partition(begin)
        _, closed, after = rest.partition(end)
        if not (found and closed):
            raise LookupError(f"{PAGE.name} has no place for {name!r}: {begin} … {end}")
        page = f"{before}{begin}\n{_machine()}\n\n{table(name, result)}\n{end}{after}"
        _draw(name, result)
    PAGE.write_text(page, encoding="utf-8")


def _draw(name: str, result: Mapping[str, Any]) -> None:
    # matplotlib is not needed to measure
    if name == "spark":
        from benchmarks.spark import plots

        plots.draw(result, PAGE.parent)
    if curves := result.get("curves"):
        from benchmarks.trackers.plots import draw

        draw(curves, PAGE.parent)


def _kafka(result: Mapping[str, Any]) -> str:
    return kafka_report.tables(result, AIMS)


def _message(result: Mapping[str, Any]) -> str:
    rows = [
        (
            "a message, attribute by attribute (adapters)",
            figure(result["message_us"], 3),
            f"≤ {LIMIT_US}",
        ),
        ("`Message.make`", figure(result["make_us"], 3), "-"),
    ]
    return markdown.table(("what", "µs", "aim"), rows)


def _machine() -> str:
    clients = ", ".join(f"{name} {_version(name)}" for name in _CLIENTS)
    python = f"{platform.python_implementation()} {platform.python_version()}"
    return f"{cpu_count()} cores, {platform.system()}, {python}, {clients}."


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "absent"


TABLES: Mapping[str, Callable[[Mapping[str, Any]], str]] = {
    "kafka": _kafka,
    "kinesis": kinesis.tables,
    "message": _message,
    "latency": latency.tables,
    "leases": leases.tables,
    "partitions": partitions.tables,
    "pulsar": pulsar_tables.tables,
    "rebalance": rebalance.tables,
    "share": share.tables,
    "spark": spark.tables,
    "stores": stores.tables,
    "telemetry": telemetry.tables,
    "trackers": tables,
    "workers": workers.tables,
}
