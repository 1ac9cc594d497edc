"""The figures of ``python -m benchmarks spark``, made of what the drivers printed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any

from benchmarks.spark.kinds import KINDS

__all__ = ["AIMS", "figures"]

AIMS: dict[str, tuple[str, float]] = {
    "pull_batch_vs_jvm": ("≥", 1.5),
    "pull_stream_vs_jvm": ("≥", 1.5),
    "pull_stream_steady_vs_jvm": ("≥", 2.0),
    "short_run_s_vs_jvm": ("≤", 0.8),
    "short_run_loaded_s_vs_jvm": ("≤", 1.2),
    **{f"pull_{name}_vs_jvm": ("≥", 1.2) for name in KINDS},
    "pull_vs_naive": ("≥", 2.5),
    "pull_vs_arrow_ceiling": ("≥", 0.6),
    "feed_vs_pull": ("≥", 0.85),
    "write_vs_jvm": ("≥", 0.8),
    "idle_broker_calls_per_s": ("≤", 5),
    "group_lag_after_available_now": ("=", 0),
    "latency_p50_ms_vs_jvm": ("≤", 1.25),
    "latency_p50_ms_vs_jvm_filesystem": ("≤", 1.0),
}

_BATCHES = {
    "pull_batch_vs_jvm": "jvm",
    "pull_vs_naive": "naive",
    "pull_vs_arrow_ceiling": "arrow_fixed",
    "pull_vs_arrow_lists": "arrow_lists",
}
"""Whose rate ours is divided by."""

Runs = Mapping[str, Sequence[float]]


def figures(found: Mapping[str, Any]) -> dict[str, Any]:
    """The ratios of `AIMS` and what they are made of; None where a contestant failed."""
    runs = {
        "batch": found["throughput"]["batch"]["runs"],
        "stream": found["throughput"]["stream"]["runs"],
        "steady": found["throughput"]["steady"]["runs"],
        "mixed": found["mixed"]["batch"]["runs"],
        "kinds": {name: each["batch"]["runs"] for name, each in found["kinds"].items()},
        "short": {name: each["runs"] for name, each in found["short"].items()},
        "feed": found["feed"]["runs"],
        "write": found["write"]["runs"],
        "cpu": {name: each["runs"] for name, each in found["cpu"].items()},
        "latency": {name: each["runs"] for name, each in found["latency"].items()},
    }
    idle = found["idle"]
    report: dict[str, Any] = _ratios(runs) | {
        "idle_broker_calls_per_s": _per_second(idle, "ours"),
        "group_lag_after_available_now": found["lag"],
        "rates": {
            name: _medians(runs[name])
            for name in ("batch", "stream", "steady", "mixed", "feed", "write")
        },
        "latency_p50_ms": {name: _medians(each) for name, each in runs["latency"].items()},
        "kind_rates": {name: _medians(each) for name, each in runs["kinds"].items()},
        "short_run_s": {name: _medians(each, 2) for name, each in runs["short"].items()},
        "cpu_s": {name: each["kinds"] for name, each in found["cpu"].items()},
        "stages_ms": {name: each["stages_ms"] for name, each in found["latency"].items()},
        "rss_mb": {**found["memory"], "feed": {"feeder": found["feed"].get("feeder_mb")}},
        "idle": idle["calls"],
        "idle_seconds": idle["seconds"],
        "runs": runs,
        "failures": failures(found),
    }
    return {key: report[key] for key in AIMS} | report


def _ratios(runs: Mapping[str, Any]) -> dict[str, float | None]:
    latency, short = runs["latency"], runs["short"]
    kinds = {
        f"pull_{name}_vs_jvm": ratio(each, "ours", "jvm") for name, each in runs["kinds"].items()
    }
    return (
        kinds
        | {key: ratio(runs["batch"], "ours", theirs) for key, theirs in _BATCHES.items()}
        | {
            "pull_mixed_vs_jvm": ratio(runs["mixed"], "ours", "jvm"),
            "pull_stream_vs_jvm": ratio(runs["stream"], "ours", "jvm"),
            "pull_stream_steady_vs_jvm": ratio(runs["steady"], "ours", "jvm"),
            "short_run_s_vs_jvm": ratio(short["alone"], "ours", "jvm"),
            "short_run_loaded_s_vs_jvm": ratio(short["loaded"], "ours", "jvm"),
            "stream_cpu_s_vs_jvm": ratio(runs["cpu"]["stream"], "ours", "jvm"),
            "short_run_cpu_s_vs_jvm": ratio(runs["cpu"]["short"], "ours", "jvm"),
            "write_vs_jvm": ratio(runs["write"], "ours", "jvm"),
            "feed_vs_pull": ratio(runs["feed"], "feed", "ours"),
            "latency_p50_ms_vs_jvm": ratio(latency["default"], "ours", "jvm"),
            "latency_p50_ms_vs_jvm_filesystem": ratio(latency["filesystem"], "ours", "jvm"),
        }
    )


def ratio(runs: Runs, ours: str, theirs: str) -> float | None:
    """The median of the rounds' ratios: two runs of one round met the machine in one state."""
    pairs = list(zip(runs.get(ours, ()), runs.get(theirs, ()), strict=False))
    return round(median(mine / other for mine, other in pairs), 3) if pairs else None


def failures(found: Mapping[str, Any]) -> dict[str, str]:
    """What went wrong, by the measurement and the contestant."""
    parts = {
        "batch": found["throughput"]["batch"],
        "stream": found["throughput"]["stream"],
        "mixed": found["mixed"]["batch"],
        "feed": found["feed"],
        "write": found["write"],
        "short run": found["short"]["alone"],
        **{f"processor time, {name}": each for name, each in found["cpu"].items()},
        "short run, loaded": found["short"]["loaded"],
        **{name: each["batch"] for name, each in found["kinds"].items()},
        "latency": found["latency"]["default"],
        "latency on the file system": found["latency"]["filesystem"],
    }
    named = {
        f"{part}: {name}": why
        for part, result in parts.items()
        for name, why in result["failures"].items()
    }
    return {**named, **found["failures"]}


def _medians(runs: Runs, digits: int | None = None) -> dict[str, float | None]:
    return {name: round(median(each), digits) if each else None for name, each in runs.items()}


def _per_second(idle: Mapping[str, Any], name: str) -> float | None:
    calls = idle["calls"].get(name)
    return None if calls is None else round(sum(calls.values()) / idle["seconds"], 2)
