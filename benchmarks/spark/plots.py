"""The figures of ``python -m benchmarks spark`` as pictures for ``docs/performance.md``.

The same figures give the same bytes, so that a picture changes only when a measurement did.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import matplotlib as mpl
from matplotlib.figure import Figure

__all__ = ["Bars", "bars", "draw"]

_LABELS = {
    "jvm": "Spark's own source",
    "ours": "ours",
    "naive": "getmany + tuples",
    "arrow_fixed": "Arrow, no broker",
    "arrow_lists": "Arrow from lists",
    "feed": "ours, by a feed",
}


class Bars(NamedTuple):
    """A picture: a bar for each contestant, the median, and a dot for each run."""

    title: str
    unit: str
    runs: Mapping[str, Sequence[float]]


def bars(result: Mapping[str, Any]) -> dict[str, Bars]:
    """The pictures by the name of their file; contestants that failed are left out."""
    runs = result["runs"]
    stream = runs["stream"] | {"feed": runs["feed"].get("feed", [])}
    latency = runs["latency"]
    found = {
        "spark-batch": Bars("A batch, to a sink that drops it", "rows/s", runs["batch"]),
        "spark-stream": Bars("A stream, from nothing to its last row", "rows/s", stream),
        "spark-latency": Bars(
            "A micro-batch of a trickle (p50)",
            "ms",
            {
                f"{_LABELS[name]},\n{manager}": times
                for manager, both in latency.items()
                for name, times in both.items()
            },
        ),
    }
    return {name: plot for name, plot in found.items() if any(plot.runs.values())}


def draw(result: Mapping[str, Any], folder: Path) -> list[Path]:
    """Write ``spark-NAME.svg`` for each picture."""
    paths = {name: folder / f"{name}.svg" for name in bars(result)}
    # Text that stays text makes small files; a fixed salt and no date make equal ones.
    with mpl.rc_context({"font.size": 9, "svg.fonttype": "none", "svg.hashsalt": "consumer_sdk"}):
        for name, plot in bars(result).items():
            metadata = {"Date": None, "Creator": None}
            _figure(plot).savefig(paths[name], format="svg", metadata=metadata)
    return list(paths.values())


def _figure(plot: Bars) -> Figure:
    runs = {name: times for name, times in plot.runs.items() if times}
    figure = Figure(figsize=(7, 0.9 + 0.42 * len(runs)), layout="constrained")
    axes = figure.subplots()
    for place, times in enumerate(runs.values()):
        middle = sorted(times)[len(times) // 2]
        axes.barh(place, middle, color="tab:blue", alpha=0.6)
        axes.plot(times, [place] * len(times), "o", ms=3, color="black")
    axes.set_yticks(range(len(runs)), [_LABELS.get(name, name) for name in runs])
    axes.invert_yaxis()
    axes.set_title(plot.title, loc="left")
    axes.set_xlabel(plot.unit)
    axes.xaxis.set_major_formatter("{x:,.0f}")
    axes.grid(axis="x", alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)
    return figure
