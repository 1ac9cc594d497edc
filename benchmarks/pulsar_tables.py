"""The figures of ``python -m benchmarks pulsar``: what is promised, and its tables."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from benchmarks.markdown import figure, table

__all__ = ["AIMS", "RATIOS", "tables"]

AIMS: dict[str, float] = {
    "messages_vs_pulsar_asyncio": 4,
    "batches_vs_batch_receive": 0.95,
    "run_noop_vs_pulsar_asyncio": 3,
    "batches_vs_batch_receive_ahead": 0.85,
}

RATIOS: dict[str, tuple[str, str]] = {
    "messages_vs_pulsar_asyncio": ("ours_messages", "pulsar_asyncio"),
    "batches_vs_batch_receive": ("ours_batches", "batch_receive"),
    "run_noop_vs_pulsar_asyncio": ("ours_run_noop", "pulsar_asyncio"),
    "batches_vs_batch_receive_ahead": ("ours_batches", "batch_receive_ahead"),
    "batches_vs_pulsar_asyncio": ("ours_batches", "pulsar_asyncio"),
    "messages_vs_pulsar_asyncio_on_uvloop": ("ours_messages_uvloop", "pulsar_asyncio_uvloop"),
}
"""Whose rate over whose."""


def tables(result: Mapping[str, Any]) -> str:
    """The ratios, and the contestants side by side."""
    before, after = result["load_average"]
    client = result["versions"]["pulsar-client"]
    return "\n\n".join(
        [
            f"pulsar-client {client}. Load average {before:.1f} before and {after:.1f} after.",
            table(("ratio", "reached", "aim"), _ratios(result)),
            table(
                ("contestant", "run with", "records/s", "CPU µs a record", "peak RSS, MB"),
                _contestants(result),
            ),
        ]
    )


def _ratios(result: Mapping[str, Any]) -> Iterable[tuple[str, ...]]:
    for key in filter(result.__contains__, RATIOS):
        yield f"`{key}`", figure(result[key], 2), f"≥ {AIMS[key]:g}" if key in AIMS else "-"


def _contestants(result: Mapping[str, Any]) -> Iterable[tuple[str, ...]]:
    for name, rate in result["rates"].items():
        yield (
            f"`{name}`",
            result["variants"][name],
            figure(rate, 0),
            figure(result["cpu_us"][name], 1),
            figure(result["rss_mb"][name], 0),
        )
