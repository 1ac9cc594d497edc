"""The figures of ``python -m benchmarks kinesis`` as tables."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from benchmarks.kinesis.aims import AIMS, RATIOS
from benchmarks.markdown import figure, table

__all__ = ["tables"]


def tables(result: Mapping[str, Any]) -> str:
    """What was promised, the contestants side by side, and what else was measured."""
    parts = [
        _conditions(result),
        table(("figure", "reached", "aim"), _figures(result)),
        table(
            ("contestant", "at its best with", "records/s", "CPU µs a record", "peak RSS, MB"),
            _contestants(result),
        ),
        table(("shard", "most GetRecords in a second"), _calls(result)),
    ]
    return "\n\n".join(parts)


def _conditions(result: Mapping[str, Any]) -> str:
    before, after = result["load_average"]
    clients = ", ".join(f"{name} {number}" for name, number in result["versions"].items())
    return f"{clients}. Load average {before:.1f} before and {after:.1f} after."


def _figures(result: Mapping[str, Any]) -> Iterable[tuple[str, str, str]]:
    for key in [*AIMS, *(key for key in RATIOS if key not in AIMS), "busy_shard_p50_s"]:
        sign, aim = AIMS.get(key, ("-", None))
        reached = figure(result[key], 0 if isinstance(result[key], int) else 2)
        yield f"`{key}`", reached, sign if aim is None else f"{sign} {aim:g}"


def _contestants(result: Mapping[str, Any]) -> Iterable[tuple[str, ...]]:
    for name, rate in result["rates"].items():
        yield (
            f"`{name}`",
            result["variants"][name],
            figure(rate, 0),
            figure(result["cpu_us"][name], 1),
            figure(result["rss_mb"][name], 0),
        )


def _calls(result: Mapping[str, Any]) -> Iterable[tuple[str, str]]:
    for kind, calls in result["read_calls"].items():
        yield kind, str(calls)
