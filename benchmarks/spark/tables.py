"""The tables of ``python -m benchmarks spark``."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from benchmarks.markdown import figure, table
from benchmarks.spark.figures import AIMS
from benchmarks.spark.pictures import bars

__all__ = ["NAMES", "tables"]

NAMES = {
    "jvm": "Spark's own Kafka source (JVM)",
    "ours": 'ours, `format("consumer_sdk")`',
    "naive": "naive: `getmany` and tuples",
    "arrow_fixed": "no broker: one Arrow batch over and over",
    "arrow_lists": "no broker: Arrow batches made of lists",
    "feed": "ours, consumer → `SparkFeed` → `feed://`",
}


def tables(result: Mapping[str, Any]) -> str:
    """The figures with their aims, what they are made of, and links to the pictures."""
    before, after = result["load_average"]
    versions = ", ".join(f"{name} {number}" for name, number in result["versions"].items())
    return "\n\n".join(
        [
            f"{versions}. Load average {before:.1f} before and {after:.1f} after.",
            table(("figure", "reached", "aim"), _figures(result)),
            table(("source", "batch, rows/s", "of mixed sizes", "stream, rows/s"), _rates(result)),
            table(("batch of other records, rows/s", "JVM", "ours"), _kinds(result)),
            table(("ten records with `availableNow`, s", "JVM", "ours"), _short(result)),
            table(("processor time, s", "JVM", "workers", "runner"), _cpu(result)),
            table(("sink", "rows written, rows/s"), _writes(result)),
            table(("p50 of a micro-batch, ms", "JVM", "ours"), _latency(result)),
            table(("peak RSS, MB", "JVM", "Python worker", "runner", "consumer"), _memory(result)),
            table(("idle, requests/s", "by kind"), _idle(result)),
            "\n".join(f"![{plot.title}]({name}.svg)" for name, plot in bars(result).items()),
        ]
    )


def _figures(result: Mapping[str, Any]) -> Iterable[tuple[str, ...]]:
    others = dict.fromkeys(
        (
            "pull_vs_arrow_lists",
            "pull_mixed_vs_jvm",
            "stream_cpu_s_vs_jvm",
            "short_run_cpu_s_vs_jvm",
        ),
        "-",
    )
    aims = {key: f"{sign} {aim:g}" for key, (sign, aim) in AIMS.items()}
    for key, aim in {**aims, **others}.items():
        if result[key] is not None or "only" not in result:
            yield f"`{key}`", figure(result[key], 2), aim


def _rates(result: Mapping[str, Any]) -> Iterable[tuple[str, ...]]:
    rates = result["rates"]
    # The pull source runs beside the feed once more; that figure is only the feed's measure.
    streams = rates["stream"] | {"feed": rates["feed"].get("feed")}
    for name, text in NAMES.items():
        if name in rates["batch"] or name in streams:
            yield (
                text,
                *(_given(given, name) for given in (rates["batch"], rates["mixed"], streams)),
            )


def _cpu(result: Mapping[str, Any]) -> Iterable[tuple[str, ...]]:
    titles = {"stream": "the stream", "short": "ten records"}
    for title, runs in result["cpu_s"].items():
        for name, kinds in runs.items():
            seconds = (figure(kinds.get(kind, 0), 2) for kind in ("jvm", "worker", "runner"))
            yield f"{titles[title]}: {NAMES[name]}", *seconds


def _writes(result: Mapping[str, Any]) -> Iterable[tuple[str, ...]]:
    for name, text in {"jvm": "Spark's own Kafka sink (JVM)", "ours": NAMES["ours"]}.items():
        yield text, _given(result["rates"]["write"], name)


def _given(rates: Mapping[str, float | None], name: str) -> str:
    return figure(rates[name], 0) if name in rates else "-"


def _kinds(result: Mapping[str, Any]) -> Iterable[tuple[str, ...]]:
    texts = {"json": "JSON", "gzip": "JSON, gzip", "zstd": "JSON, zstd", "10kb": "of 10 kB"}
    for name, rates in result["kind_rates"].items():
        yield texts[name], figure(rates.get("jvm"), 0), figure(rates.get("ours"), 0)


def _short(result: Mapping[str, Any]) -> Iterable[tuple[str, ...]]:
    for name, seconds in result["short_run_s"].items():
        text = "beside eight busy loops" if name == "loaded" else "alone"
        yield text, figure(seconds.get("jvm"), 2), figure(seconds.get("ours"), 2)


def _latency(result: Mapping[str, Any]) -> Iterable[tuple[str, ...]]:
    managers = {"default": "default checkpoint manager", "filesystem": "FileSystem one"}
    for name, text in managers.items():
        p50 = result["latency_p50_ms"][name]
        yield text, figure(p50.get("jvm"), 0), figure(p50.get("ours"), 0)


def _memory(result: Mapping[str, Any]) -> Iterable[tuple[str, ...]]:
    for name, peaks in result["rss_mb"].items():
        kinds = (peaks.get(kind) for kind in ("jvm", "worker", "runner", "feeder"))
        yield NAMES[name], *("-" if peak is None else figure(peak, 0) for peak in kinds)


def _idle(result: Mapping[str, Any]) -> Iterable[tuple[str, ...]]:
    seconds = result["idle_seconds"]
    for name, calls in result["idle"].items():
        kinds = (f"{kind} {count / seconds:.1f}" for kind, count in sorted(calls.items()))
        yield f"{NAMES[name]}: {sum(calls.values()) / seconds:.1f}", ", ".join(kinds) or "none"
