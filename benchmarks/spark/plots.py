"""The figures of ``python -m benchmarks spark`` drawn for ``docs/performance.md``.

The same figures give the same bytes, so that a picture changes only when a measurement did.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.figure import Figure

from benchmarks.spark.pictures import LABELS, Bars, bars

__all__ = ["draw"]


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
    axes.set_yticks(range(len(runs)), [LABELS.get(name, name) for name in runs])
    axes.invert_yaxis()
    axes.set_title(plot.title, loc="left")
    axes.set_xlabel(plot.unit)
    axes.xaxis.set_major_formatter("{x:,.0f}")
    axes.grid(axis="x", alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)
    return figure
