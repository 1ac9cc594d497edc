"""The figures of ``python -m benchmarks trackers`` as tables."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from benchmarks.markdown import figure, table
from benchmarks.trackers.flushes import EVERY_SECOND, ONE_MORE
from benchmarks.trackers.suite import AIMS

__all__ = ["tables"]


def tables(result: Mapping[str, Any]) -> str:
    """What was promised, the structures side by side, and what else was measured."""
    if result["failures"]:
        return table(("probe", "failed with"), result["failures"].items())
    parts = [
        _conditions(result),
        table(("figure", "reached", "aim"), _promised(result)),
        table(
            ("structure", "ns a record", "bytes with one stuck and 1 M settled behind it"),
            _structures(result),
        ),
        table(("holes", *(f"{name}, ms" for name in _hole_columns(result))), _holes(result)),
        table(("what", "reached"), _others(result)),
    ]
    return "\n\n".join(parts)


def _conditions(result: Mapping[str, Any]) -> str:
    before, after = result["load_average"]
    return (
        f"Load average {before:.1f} before and {after:.1f} after; the probes had a processor for "
        f"{result['cpu_share']:.0%} of their time."
    )


def _promised(result: Mapping[str, Any]) -> Iterable[tuple[str, str, str]]:
    for key, (sign, aim) in AIMS.items():
        yield f"`{key}`", _short(result[key]), f"{sign} {_short(aim)}"


def _structures(result: Mapping[str, Any]) -> Iterable[tuple[str, str, str]]:
    stuck = result["curves"]["stuck"]
    for name, cost in result["track_ack_ns"].items():
        points = stuck.get("ours, int" if name == "ours" else name, {})
        kept = list(points.values())[-1:]
        yield name, figure(cost, 0), figure(kept[0], 0) if kept else "-"


def _holes(result: Mapping[str, Any]) -> Iterable[list[str]]:
    for holes in result["curves"]["flush"][EVERY_SECOND]:
        costs = [points[holes] for points in _hole_columns(result).values()]
        yield [f"{int(holes):,}", *(f"{cost * int(holes) / 1e6:.2f}" for cost in costs)]


def _hole_columns(result: Mapping[str, Any]) -> dict[str, Mapping[str, float]]:
    flushes, forms = result["curves"]["flush"], result["curves"]["encode"]
    return {
        "first flush": flushes[EVERY_SECOND],
        "flush after one more ack": flushes[ONE_MORE],
    } | {f"encoding, {form}": points for form, points in forms.items()}


def _others(result: Mapping[str, Any]) -> Iterable[tuple[str, str]]:
    for name, rate in result["cumulative"].items():
        yield f"tracked and acked cumulatively, {name}", f"{rate / 1e6:.1f} M records/s"
    for step, cost in result["retry_us"].items():
        yield f"{step}, 50,000 waiting", f"{cost:.1f} µs"
    yield "trees among a million open", f"{result['trees_among_million_per_s'] / 1e6:.2f} M trees/s"
    yield "a tree opened by `message.tree()`", f"{result['tree_bytes_per_message']:.0f} bytes"
    for name, kept in result["in_flight_bytes"].items():
        yield f"in flight, {name}", f"{kept:.0f} bytes a record"


def _short(value: float | None) -> str:
    is_count = value is not None and value == int(value)
    return figure(value, 0 if is_count else 2)
